// How much faster are our optimizers than torch::optim?
#include <functional>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "benchmarks/bench.h"
#include "composer/optim/optimizer.h"

namespace composer::bench {
namespace {

using Shapes = std::vector<std::vector<std::int64_t>>;

// Adds a convolution, and the scale and shift of its batch norm.
void add_convolution(Shapes& shapes, std::int64_t in, std::int64_t out, std::int64_t kernel = 3) {
  shapes.push_back({out, in, kernel, kernel});
  shapes.push_back({out});
  shapes.push_back({out});
}

// 19 convolutions and a classifier: 59 tensors, 0.2 million numbers.
Shapes small_cnn() {
  Shapes shapes;
  add_convolution(shapes, 3, 16);
  for (int i = 0; i < 18; ++i) {
    const std::int64_t width = i < 6 ? 16 : i < 12 ? 32 : 48;
    add_convolution(shapes, i == 6 ? 16 : i == 12 ? 32 : width, width);
  }
  shapes.push_back({10, 48});
  shapes.push_back({10});
  return shapes;
}

// 62 tensors, 11.2 million numbers.
Shapes resnet18() {
  Shapes shapes;
  add_convolution(shapes, 3, 64);
  std::int64_t in = 64;
  for (const std::int64_t width : {64, 128, 256, 512}) {
    for (int block = 0; block < 2; ++block) {
      add_convolution(shapes, in, width);
      add_convolution(shapes, width, width);
      if (in != width) add_convolution(shapes, in, width, 1);
      in = width;
    }
  }
  shapes.push_back({10, 512});
  shapes.push_back({10});
  return shapes;
}

// 148 tensors, 10 million numbers.
Shapes transformer() {
  constexpr std::int64_t kWidth = 256;
  Shapes shapes = {{2000, kWidth}, {128, kWidth}, {kWidth}, {kWidth}};
  for (int layer = 0; layer < 12; ++layer)
    for (const std::vector<std::int64_t>& shape : Shapes{{3 * kWidth, kWidth},
                                                         {3 * kWidth},
                                                         {kWidth, kWidth},
                                                         {kWidth},
                                                         {kWidth},
                                                         {kWidth},
                                                         {4 * kWidth, kWidth},
                                                         {4 * kWidth},
                                                         {kWidth, 4 * kWidth},
                                                         {kWidth},
                                                         {kWidth},
                                                         {kWidth}})
      shapes.push_back(shape);
  return shapes;
}

Shapes mlp() { return {{32, 784}, {32}, {10, 32}, {10}}; }

optim::NamedParameters parameters_of(const Shapes& shapes) {
  at::manual_seed(1);
  optim::NamedParameters list;
  for (const auto& shape : shapes) {
    at::Tensor tensor = (at::randn(shape) * 0.1).set_requires_grad(true);
    tensor.mutable_grad() = at::randn(shape) * 0.01;
    list.push_back({"p" + std::to_string(list.size()), tensor});
  }
  return list;
}

struct Method {
  std::string name;
  optim::AnyOptimizer ours;
  std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> reference;
};

template <class Optimizer, class Options>
auto reference(Options options) {
  return
      [options](std::vector<at::Tensor> tensors) { return std::make_shared<Optimizer>(std::move(tensors), options); };
}

std::vector<Method> methods() {
  namespace to = torch::optim;
  return {{"SGD momentum", optim::sgd({.lr = 1e-4, .momentum = 0.9, .weight_decay = 5e-4}),
           reference<to::SGD>(to::SGDOptions(1e-4).momentum(0.9).weight_decay(5e-4))},
          {"AdamW", optim::adamw({.lr = 1e-4}), reference<to::AdamW>(to::AdamWOptions(1e-4))},
          {"Adam", optim::adam({.lr = 1e-4}), reference<to::Adam>(to::AdamOptions(1e-4))}};
}

void compare(Report& report, const std::string& set, const Shapes& shapes, const Method& method, int threads,
             int calls) {
  const std::string group =
      set + ", " + method.name + ", " + std::to_string(threads) + (threads > 1 ? " threads" : " thread");
  if (!report.wants(group)) return;
  at::set_num_threads(threads);
  const auto a = parameters_of(shapes), b = parameters_of(shapes);
  std::vector<at::Tensor> tensors;
  for (const auto& one : b) tensors.push_back(one.tensor);
  const auto ours = method.ours.make(a), theirs = method.reference(tensors);
  for (int i = 0; i < 3; ++i) {
    ours->step();
    theirs->step();
  }
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::allclose(a[i].tensor, b[i].tensor, 1e-5, 1e-6)) throw std::runtime_error(group + ": different results");
  const auto steps = [](torch::optim::Optimizer& optimizer) {
    return [&optimizer](int times) {
      for (int i = 0; i < times; ++i) optimizer.step();
    };
  };
  report.compare(group, {{"libcomposer", steps(*ours)}, {"torch::optim", steps(*theirs)}}, 15, calls);
}

void run(const Options& options) {
  Report report(options);
  const at::AutoGradMode with_grad(true);
  for (const int threads : {1, 2}) {
    for (const Method& method : methods()) {
      compare(report, "MLP, 4 tensors", mlp(), method, threads, 200);
      compare(report, "small CNN, 59 tensors", small_cnn(), method, threads, 40);
      compare(report, "ResNet-18, 62 tensors", resnet18(), method, threads, 2);
      compare(report, "transformer, 148 tensors", transformer(), method, threads, 2);
    }
  }
  report.write();
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) { composer::bench::run(composer::bench::parse(argc, argv)); }
