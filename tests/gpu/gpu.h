#pragma once
// What the tests of this folder share: each trains on a GPU, and is skipped where there is none.
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "composer/data/in_memory.h"
#include "composer/device/device_support.h"
#include "composer/models/bert.h"
#include "composer/models/gpt.h"
#include "composer/models/mlp.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet_cifar.h"
#include "composer/trainer/trainer.h"
#include "tests/support/doctest.h"

namespace composer::test {

// Says so once if there is none.
inline bool has_gpu() {
  static const bool has = [] {
    if (!at::hasCUDA()) std::cerr << "gpu_tests: libtorch finds no CUDA device, so all are skipped\n";
    return at::hasCUDA();
  }();
  return has;
}
inline doctest::skip on_gpu() { return doctest::skip(!has_gpu()); }

inline const at::Device kCpu(at::kCPU), kGpu(at::kCUDA);

inline std::int64_t available_memory(at::Device gpu) { return device_support(gpu.type()).available_memory(gpu); }
inline void release_cached_memory(at::Device gpu) { device_support(gpu.type()).release_cached_memory(gpu); }

// Numbers from 0 to 1, always the same.
inline at::Tensor noise(std::int64_t count) {
  return at::sin(at::arange(count, at::kDouble).square() * 1.7).add_(1).div_(2);
}

constexpr std::int64_t kSamples = 64, kBatchSize = 16, kBatches = 12;

inline Batch images(std::int64_t channels, std::int64_t side) {
  return {{"input", noise(kSamples * channels * side * side).to(at::kFloat).view({kSamples, channels, side, side})},
          {"target", at::arange(kSamples).remainder(3)}};
}
inline Batch texts() {
  const at::Tensor all = noise(kSamples * 9).mul_(11 - 1e-6).to(at::kLong).view({kSamples, 9});
  return {{"input_ids", all.slice(1, 0, 8).contiguous()}, {"target", all.slice(1, 1).contiguous()}};
}

// No dropout: a GPU draws other numbers than a CPU.
struct Net {
  const char* name;
  std::shared_ptr<Model> (*model)();
  Batch (*data)();
  double tolerance;  // of weights after kBatches, between a GPU and a CPU, in shares of 1 + |weight|
};

inline std::span<const Net> nets() {
  static const std::vector<Net> all = {
      {"MLP",
       [] {
         return std::shared_ptr<Model>(models::mlp({.features = {64, 32, 3}}));
       },
       [] { return images(1, 8); }, 1e-5},
      {"CNN",
       [] { return std::shared_ptr<Model>(models::mnist_cnn({.num_classes = 3, .dropout1 = 0, .dropout2 = 0})); },
       [] { return images(1, 28); }, 1e-4},
      {"ResNet-8", [] { return std::shared_ptr<Model>(models::resnet_cifar({.depth = 8, .num_classes = 3})); },
       [] { return images(3, 16); }, 2e-3},
      {"GPT",
       [] {
         return std::shared_ptr<Model>(
             models::gpt({.vocabulary = 11, .sequence_length = 8, .width = 16, .depth = 2, .heads = 2}));
       },
       texts, 1e-4},
      {"BERT",
       [] {
         return std::shared_ptr<Model>(models::bert({.num_classes = 3,
                                                     .vocabulary = 11,
                                                     .sequence_length = 8,
                                                     .width = 16,
                                                     .depth = 2,
                                                     .heads = 2,
                                                     .dropout = 0,
                                                     .attention_dropout = 0}));
       },
       [] {
         return Batch{{"input_ids", texts()["input_ids"]}, {"target", at::arange(kSamples).remainder(3)}};
       },
       1e-4},
  };
  return all;
}

// Three epochs, which are kBatches of kBatchSize, in float32 products.
inline TrainerOptions options_of(const Net& net, at::Device device) {
  at::manual_seed(3);
  TrainerOptions options;
  options.model = net.model();
  options.train_dataloader = data::in_memory(net.data(), {.batch_size = kBatchSize});
  options.eval_dataloader = data::in_memory(net.data(), {.batch_size = kSamples, .shuffle = false});
  options.optimizer = optim::sgd({.lr = 0.02, .momentum = 0.9});
  options.max_duration = Time(kBatches, TimeUnit::BATCH);
  options.run_name = "gpu";
  options.device = device;
  options.allow_tf32 = false;
  options.seed = 7;
  options.handle_signals = false;
  return options;
}

// Parameters and buffers, on the CPU.
inline std::vector<at::Tensor> weights_on_cpu(Trainer& trainer) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& one : trainer.state().model->parameters()) all.push_back(one.detach().to(kCpu, at::kDouble));
  for (const at::Tensor& one : trainer.state().model->buffers()) all.push_back(one.detach().to(kCpu, at::kDouble));
  return all;
}

inline std::vector<at::Tensor> trained(TrainerOptions options) {
  Trainer trainer(std::move(options));
  trainer.fit();
  return weights_on_cpu(trainer);
}

// The largest, in shares of 1 + |b|. Infinite where one is not finite.
inline double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i].numel() == 0) continue;
    const at::Tensor x = a[i].to(kCpu, at::kDouble), y = b[i].to(kCpu, at::kDouble);
    const double here = ((x - y).abs() / (1 + y.abs())).max().item<double>();
    if (!std::isfinite(here)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, here);
  }
  return largest;
}

// Checks that they are no further apart than this, and says how far they are: of a GPU nobody knows before.
inline void check_close(const std::string& what, const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                        double tolerance) {
  const double apart = distance(a, b);
  std::cout << what << ": " << apart << " apart, at most " << tolerance << std::endl;
  CAPTURE(what);
  CAPTURE(apart);
  CHECK(apart <= tolerance);
}

}  // namespace composer::test
