// What happens when the memory of a GPU is short. It is filled for that, so each of these tests wants the GPU for
// itself.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/callbacks/oom_observer.h"
#include "composer/core/callback.h"
#include "composer/core/error.h"
#include "composer/models/classifier.h"
#include "tests/gpu/gpu.h"
#include "tests/support/sandbox.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::gpu_memory_test {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kWide = 65536, kSamplesOfWide = 4096;

// A batch's activations take a GiB in each of two tensors, and as much again in backward; weights take 260 MiB.
std::shared_ptr<Model> wide_net() {
  at::manual_seed(3);
  const torch::nn::Sequential net(torch::nn::Linear(1024, kWide), torch::nn::ReLU(), torch::nn::Linear(kWide, 3));
  return std::make_shared<models::Classifier>(
      net, models::ClassifierOptions{.num_classes = 3, .train_metrics = Metrics(), .val_metrics = Metrics()});
}

TrainerOptions wide_options() {
  TrainerOptions options;
  options.model = wide_net();
  options.train_dataloader =
      data::in_memory({{"input", noise(kSamplesOfWide * 1024).to(at::kFloat).view({kSamplesOfWide, 1024})},
                       {"target", at::arange(kSamplesOfWide).remainder(3)}},
                      {.batch_size = kSamplesOfWide, .shuffle = false});
  options.optimizer = optim::sgd({.lr = 0.1});
  options.max_duration = "3ba";
  options.run_name = "wide";
  options.device = kGpu;
  options.allow_tf32 = false;
  options.seed = 7;
  options.handle_signals = false;
  return options;
}

// Takes the memory of the GPU but for so many bytes.
at::Tensor fill(std::int64_t left) {
  at::empty({1}, at::TensorOptions().device(kGpu));  // the allocator and its context
  release_cached_memory(kGpu);
  const std::int64_t bytes = available_memory(kGpu) - left;
  REQUIRE(bytes > 0);
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(kGpu));
}

std::int64_t final_size(TrainerOptions options, std::vector<at::Tensor>& weights) {
  Trainer trainer(std::move(options));
  trainer.fit();
  weights = weights_on_cpu(trainer);
  return trainer.state().device_train_microbatch_size;
}

TEST_CASE("The available memory of a GPU is what can be allocated, out of memory is what is beyond" * on_gpu()) {
  const at::Tensor filled = fill(1024 * kMiB);
  const std::int64_t left = available_memory(kGpu);
  CHECK(left > 900 * kMiB);
  CHECK(left < 1100 * kMiB);
  const auto allocate = [](std::int64_t bytes) {
    return at::empty({bytes}, at::TensorOptions(at::kByte).device(kGpu));
  };
  CHECK_THROWS_AS(allocate(left + 64 * kMiB), c10::OutOfMemoryError);
  CHECK_NOTHROW(allocate(left - 128 * kMiB));
  CHECK(available_memory(kGpu) > left - 64 * kMiB);  // what is cached counts
}

TEST_CASE("Microbatches of \"auto\" survive that a GPU is really out of memory, and train what whole batches do" *
          on_gpu()) {
  // Before the second batch, for which there was enough memory until then.
  struct Filler final : Callback {
    void batch_start(const State& state, Logger&) override {
      if (state.timestamp.batch == 1) filled = fill(2560 * kMiB);
    }
    at::Tensor filled;
  };
  const std::vector<at::Tensor> expected = trained(wide_options());
  release_cached_memory(kGpu);
  Warnings warnings;
  TrainerOptions options = wide_options();
  options.device_train_microbatch_size = "auto";
  options.callbacks = {Filler()};
  std::vector<at::Tensor> weights;
  const std::int64_t size = final_size(std::move(options), weights);
  std::cout << "microbatches of " << size << " samples" << std::endl;
  CHECK(size < kSamplesOfWide);
  CHECK(size >= 64);
  CHECK(warnings.say("out of memory with microbatches of"));
  check_close("out of memory", weights, expected, 1e-5);
}

TEST_CASE("Microbatches of \"auto\" are as many samples as fit, and none is out of memory" * on_gpu()) {
  const std::vector<at::Tensor> expected = trained(wide_options());
  release_cached_memory(kGpu);
  const at::Tensor filled = fill(2560 * kMiB);
  Warnings warnings;
  TrainerOptions options = wide_options();
  options.device_train_microbatch_size = "auto";
  std::vector<at::Tensor> weights;
  const std::int64_t size = final_size(std::move(options), weights);
  std::cout << "microbatches of " << size << " samples" << std::endl;
  CHECK(size < kSamplesOfWide);
  CHECK(size >= 64);
  CHECK_FALSE(warnings.say("out of memory with microbatches of"));
  check_close("as many as fit", weights, expected, 1e-5);
}

TEST_CASE("OOMObserver writes a report and the allocator's history when a GPU is out of memory" * on_gpu()) {
  const Sandbox sandbox;
  struct Greedy final : models::Classifier {
    Greedy() : Classifier(torch::nn::Linear(4, 3), models::ClassifierOptions{.num_classes = 3}) {}
    Outputs forward(const Batch& batch) override {
      if (++count == 3) at::empty({std::int64_t{1} << 46}, batch["input"].options());
      return Classifier::forward(batch);
    }
    int count = 0;
  };
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Greedy>();
  options.device = kGpu;
  options.callbacks = {callbacks::OOMObserver()};
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
  trainer.close();
  const std::string report = text_of("tiny/torch_traces/rank0_oom_report.txt");
  CHECK(contains(report, "out of memory on cuda"));
  CHECK(contains(report, "memory of cuda"));
  CHECK(std::filesystem::file_size("tiny/torch_traces/rank0_oom_snapshot.pickle") > 1000);
}

}  // namespace
}  // namespace composer::test::gpu_memory_test
