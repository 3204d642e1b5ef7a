#include <algorithm>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "benchmarks/ranked/loops.h"
#include "composer/core/error.h"
#include "composer/models/mnist_cnn.h"

namespace composer::bench {
namespace {

constexpr std::int64_t kSamples = 8192;

struct Entry {
  std::string name;
  std::int64_t batch_size;  // per rank
};
const std::vector<Entry>& entries() {
  static const std::vector<Entry> list = {{"mlp", 32}, {"cnn", 16}, {"resnet20", 32}, {"gpt", 4}, {"wide", 64}};
  return list;
}

Net wide() {
  constexpr std::int64_t kWidth = 1024;
  torch::nn::Sequential net(torch::nn::Linear(784, kWidth));
  for (int layer = 0; layer < 7; ++layer) {
    net->push_back(torch::nn::ReLU());
    net->push_back(torch::nn::Linear(kWidth, kWidth));
  }
  net->push_back(torch::nn::ReLU());
  net->push_back(torch::nn::Linear(kWidth, 10));
  return {[net](const at::Tensor& x) mutable { return net->forward(x); },
          std::make_shared<models::Classifier>(
              net, models::ClassifierOptions{.num_classes = 10, .train_metrics = Metrics()})};
}

}  // namespace

const std::vector<std::string>& ranked_workload_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Entry& entry : entries()) list.push_back(entry.name);
    return list;
  }();
  return names;
}

Workload make_ranked_workload(const std::string& name) {
  const auto entry = std::ranges::find(entries(), name, &Entry::name);
  if (entry == entries().end())
    throw ConfigError("there is no workload ", name, "; there are mlp, cnn, resnet20, gpt, wide");
  Workload workload = make_workload(name == "wide" ? "mlp" : name);
  workload.name = name;
  workload.batch_size = entry->batch_size;
  if (name == "wide") workload.make = wide;
  if (name == "cnn") workload.make = [] { return net_of(models::mnist_cnn({.dropout1 = 0, .dropout2 = 0})); };
  const std::int64_t samples = std::min(kSamples, workload.input.size(0));
  workload.input = workload.input.narrow(0, 0, samples).clone();
  workload.target = workload.target.narrow(0, 0, samples).clone();
  return workload;
}

}  // namespace composer::bench
