// What waits for the GPU in the hot path, as libtorch itself tells it: more than a value that is read on the host.
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/core/error.h"
#include "composer/dist/accelerator.h"
#include "composer/dist/gradient_reducer.h"
#include "composer/loggers/in_memory_logger.h"
#include "tests/gpu/gpu.h"

namespace composer::test::gpu_waits_test {
namespace {

using c10::cuda::SyncDebugMode;

class DebugMode {
 public:
  explicit DebugMode(SyncDebugMode mode) : before_(c10::cuda::warning_state().get_sync_debug_mode()) {
    c10::cuda::warning_state().set_sync_debug_mode(mode);
  }
  ~DebugMode() { c10::cuda::warning_state().set_sync_debug_mode(before_); }
  DebugMode(const DebugMode&) = delete;
  DebugMode& operator=(const DebugMode&) = delete;

 private:
  SyncDebugMode before_;
};

// Counts those of this thread while it lives.
class Waits final : public c10::WarningHandler {
 public:
  Waits() : before_(c10::WarningUtils::get_warning_handler()) { c10::WarningUtils::set_warning_handler(this); }
  ~Waits() override { c10::WarningUtils::set_warning_handler(before_); }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;
  void process(const c10::Warning& warning) override {
    if (std::string_view(warning.msg()).find("synchronizing CUDA operation") != std::string_view::npos) ++count_;
  }
  int count() const { return count_; }

 private:
  c10::WarningHandler* before_;
  DebugMode mode_{SyncDebugMode::L_WARN};
  int count_ = 0;
};

TEST_CASE("What waits for a GPU is counted: values, masks, copies from and to memory that is not pinned" * on_gpu()) {
  const at::Tensor on_gpu = at::arange(4, kGpu), on_host = at::arange(4);
  const at::Tensor pinned = on_host.pin_memory();
  const auto waits_of = [](const auto& call) {
    const Waits waits;
    call();
    return waits.count();
  };
  CHECK(waits_of([&] { on_gpu[0].item<std::int64_t>(); }) > 0);
  CHECK(waits_of([&] { on_gpu.nonzero(); }) > 0);
  CHECK(waits_of([&] { on_gpu.cpu(); }) > 0);
  CHECK(waits_of([&] { on_host.to(kGpu); }) > 0);
  CHECK(waits_of([&] { pinned.to(kGpu, /*non_blocking=*/true); }) == 0);
  CHECK(waits_of([&] { on_gpu + 1; }) == 0);
}

constexpr int kSteps = 200, kWarmUps = 20;

// Steps by hand, with batches that lie on the GPU; each() is called around those that count.
template <class Each>
void train(const Net& net, bool graph, bool watched, const Each& each) {
  TrainerOptions options = options_of(net, kGpu);
  options.train_dataloader = {};
  options.eval_dataloader = {};
  options.max_duration = std::nullopt;
  options.cuda_graph = graph;
  if (watched) {
    options.callbacks = {callbacks::SpeedMonitor({.window_size = 5}), callbacks::LRMonitor(), callbacks::NaNMonitor()};
    options.loggers = {loggers::InMemoryLogger()};
  }
  Trainer trainer(std::move(options));
  Batch batch;
  for (const auto& [name, tensor] : net.data()) batch.set(name, tensor.to(kGpu));
  trainer.begin();
  for (int i = 0; i < kWarmUps; ++i) trainer.step(batch);
  each([&] {
    for (int i = 0; i < kSteps; ++i) trainer.step(batch);
  });
  trainer.end();
}

TEST_CASE("200 steps with three callbacks and a logger wait for a GPU no more often than without" * on_gpu()) {
  for (const Net& net : nets())
    for (const bool graph : {false, true})
      for (const bool watched : {false, true}) {
        CAPTURE(std::string(net.name));
        CAPTURE(graph);
        CAPTURE(watched);
        int count = 0;
        train(net, graph, watched, [&count](const auto& steps) {
          const Waits waits;
          steps();
          count = waits.count();
        });
        CHECK(count == 0);
      }
}

// There it is an error on each thread, such as that of autograd.
TEST_CASE("No thread waits for a GPU in 200 steps" * on_gpu()) {
  for (const Net& net : nets())
    for (const bool graph : {false, true}) {
      CAPTURE(std::string(net.name));
      CAPTURE(graph);
      std::string error;
      try {
        train(net, graph, /*watched=*/false, [](const auto& steps) {
          const DebugMode mode(SyncDebugMode::L_ERROR);
          steps();
        });
      } catch (const std::exception& caught) {
        error = describe(caught);
      }
      CHECK(error == "");
    }
}

TEST_CASE("A rank of several waits for its GPU in no step in which all gradients are there" * on_gpu()) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
  const at::Device device(at::kCUDA, 0);
  dist::Accelerator accelerator;
  accelerator.attach(group, store, dist::Environment(), device, std::chrono::seconds(30));
  {
    std::vector<at::Tensor> parameters;
    for (const std::int64_t size : {3, 5}) parameters.push_back(at::ones({size}, device).requires_grad_());
    dist::GradientReducer reducer(group, parameters, {"three", "five"}, {.bucket_bytes = std::int64_t{1} << 20});
    std::shared_ptr<const dist::GradientReducer::Counts> last;
    bool missing = false;
    const auto step = [&](bool all) {
      reducer.before_forward();
      reducer.begin(nullptr);
      const at::Tensor loss = parameters[0].square().sum();
      (all ? loss + parameters[1].sum() : loss).backward();
      reducer.finish(/*must_have=*/true);
      const auto before = std::exchange(last, reducer.start_counts());
      if (before) missing = dist::GradientReducer::summary(*before).any_missing;
      for (at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    };
    for (int i = 0; i < kWarmUps; ++i) step(true);
    const Waits waits;
    for (int i = 0; i < kSteps; ++i) step(true);
    CHECK(waits.count() == 0);
    CHECK_FALSE(missing);
    step(false);
    step(true);
    CHECK(missing);  // what is told one step later
    CHECK(waits.count() == 0);
  }
  accelerator.shutdown();
}

}  // namespace
}  // namespace composer::test::gpu_waits_test
