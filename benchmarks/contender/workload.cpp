#include "benchmarks/contender/workload.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/data/fashion_mnist.h"
#include "composer/models/gpt.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet.h"
#include "composer/models/resnet_cifar.h"

namespace composer::bench {
namespace {

constexpr std::uint64_t kSeed = 17;  // of the order, equal in all contenders
constexpr std::int64_t kVocabulary = 96, kTokens = 128;

Net mlp() {
  torch::nn::Sequential net(torch::nn::Linear(784, 32), torch::nn::ReLU(), torch::nn::Linear(32, 10));
  return {[net](const at::Tensor& x) mutable { return net->forward(x.dim() == 2 ? x : x.flatten(1)); },
          std::make_shared<models::Classifier>(
              net, models::ClassifierOptions{.num_classes = 10, .train_metrics = Metrics()})};
}

// Some of the images with a black frame, equal in all three channels.
at::Tensor in_colour(const at::Tensor& images) {
  constexpr std::int64_t kCount = 8192;
  return at::constant_pad_nd(images.narrow(0, 0, kCount), {2, 2, 2, 2}, 0).expand({kCount, 3, 32, 32}).contiguous();
}

// Text of a language in which most tokens have one successor, and others follow at random.
at::Tensor text(std::int64_t samples) {
  std::mt19937_64 random(7);
  at::Tensor windows = at::empty({samples, kTokens + 1}, at::kLong);
  auto* out = windows.mutable_data_ptr<std::int64_t>();
  std::int64_t token = 0;
  for (std::int64_t i = 0; i < windows.numel(); ++i) {
    out[i] = token;
    const auto draw = static_cast<std::int64_t>(random() >> 33);
    token = draw % 10 < 7 ? (token * 31 + 17) % kVocabulary : draw / 10 % kVocabulary;
  }
  return windows;
}

void write(const std::string& file, const at::Tensor& tensor) {
  std::ofstream out(file, std::ios::binary);
  const at::Tensor flat = tensor.contiguous();
  out.write(static_cast<const char*>(flat.const_data_ptr()), static_cast<std::streamsize>(flat.nbytes()));
  if (!out.flush()) throw Error("cannot write ", file);
}

}  // namespace

Net net_of(std::shared_ptr<models::Classifier> model, const char* input) {
  return {[raw = model.get(), input](const at::Tensor& x) { return raw->forward({{input, x}}).only(); }, model};
}

bool Workload::has_images() const { return input.scalar_type() == at::kByte; }

const std::vector<std::string>& workload_names() {
  static const std::vector<std::string> names = {"mlp", "cnn", "resnet20", "resnet18", "gpt"};
  return names;
}

Workload make_workload(const std::string& name) {
  if (std::ranges::find(workload_names(), name) == workload_names().end())
    throw ConfigError("there is no workload ", name, "; there are mlp, cnn, resnet20, resnet18, gpt");
  if (name == "gpt") {
    const at::Tensor windows = text(2048);
    const models::GptOptions options{
        .vocabulary = kVocabulary, .sequence_length = kTokens, .width = 128, .depth = 4, .heads = 4, .tied = false};
    return {name,
            16,
            Update::ADAMW,
            windows.narrow(1, 0, kTokens).contiguous(),
            windows.narrow(1, 1, kTokens).contiguous(),
            [options] { return net_of(models::gpt(options), "input_ids"); }};
  }
  const Batch images = data::FashionMnist().train;
  const at::Tensor &input = images["input"], &target = images["target"];
  if (name == "mlp") return {name, 32, Update::ADAMW, input.flatten(1), target, mlp};
  if (name == "cnn") return {name, 64, Update::ADAMW, input, target, [] { return net_of(models::mnist_cnn()); }};
  if (name == "resnet20")
    return {name, 128, Update::SGD, input, target, [] { return net_of(models::resnet_cifar({.in_channels = 1})); }};
  const at::Tensor colour = in_colour(input);
  return {name, 64, Update::ADAMW, colour, target.narrow(0, 0, colour.size(0)).clone(), [] {
            return net_of(models::resnet({.depth = 18, .num_classes = 10}));
          }};
}

at::Tensor normalized(const at::Tensor& bytes) { return bytes.to(at::kFloat).div_(255).sub_(kMean).div_(kStddev); }

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& target) {
  if (logits.dim() == 2) return at::cross_entropy_loss(logits, target);
  return at::cross_entropy_loss(logits.flatten(0, 1), target.flatten());
}

Net fresh_net(const Workload& workload) {
  at::manual_seed(0);
  Net net = workload.make();
  net.model->train();
  return net;
}

std::shared_ptr<Loader> make_loader(const Workload& workload, bool channels_last) {
  data::InMemoryOptions options{.batch_size = workload.batch_size, .seed = kSeed, .drop_last = true};
  if (workload.has_images()) {
    options.normalize = data::Normalize{.mean = {kMean}, .stddev = {kStddev}};
    options.channels_last = channels_last && workload.input.dim() == 4;
  }
  return data::in_memory({{workload.input_name(), workload.input}, {"target", workload.target}}, options);
}

double checksum(const torch::nn::Module& network) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (const at::Tensor& parameter : network.parameters()) sum += parameter.to(at::kDouble).abs().sum().item<double>();
  return sum;
}

// The order of a loader depends only on its seed and the epoch. A loader that returns all sample numbers at once
// reveals it.
Order::Order(std::int64_t samples)
    : numbers_(data::in_memory({{"input", at::arange(samples)}}, {.batch_size = samples, .seed = kSeed})) {}

at::Tensor Order::epoch(std::int64_t number) {
  numbers_->seek(number, 0);
  return numbers_->next()->at("input");
}

void write_files(const Workload& workload, const std::string& folder) {
  constexpr std::int64_t kEpochs = 2;
  std::filesystem::create_directories(folder);
  const std::string stem = folder + "/" + workload.name;
  write(stem + ".input", workload.input);
  write(stem + ".target", workload.target);
  Order order(workload.input.size(0));
  std::vector<at::Tensor> epochs, weights;
  for (std::int64_t i = 0; i < kEpochs; ++i) epochs.push_back(order.epoch(i).clone());
  write(stem + ".order", at::cat(epochs));
  const Net net = fresh_net(workload);
  for (const at::Tensor& parameter : net.model->parameters()) weights.push_back(parameter.detach().flatten());
  write(stem + ".weights", at::cat(weights));
}

}  // namespace composer::bench
