#include <fstream>
#include <string>
#include <unistd.h>

#include <ATen/Context.h>
#include <c10/core/CPUAllocator.h>

#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/models/gpt.h"
#include "composer/models/mlp.h"
#include "composer/optim/adam.h"
#include "composer/util/tune_process.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::test::memory_test {
namespace {

// Bytes of this process that are in memory.
std::int64_t resident() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  REQUIRE(resident > 0);
  return resident * ::sysconf(_SC_PAGESIZE);
}

#if !defined(__SANITIZE_ADDRESS__)

// The most bytes of this process in memory at a time since the last call.
std::int64_t most_resident() {
  std::int64_t kibibytes = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) kibibytes = std::stoll(line.substr(6));
  std::ofstream("/proc/self/clear_refs") << 5;
  REQUIRE(kibibytes > 0);
  return kibibytes * 1024;
}

struct Restored {
  Restored() = default;
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;
  ~Restored() {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), 10);
    empty_cpu_cache();
    at::globalContext().setFlushDenormal(false);
  }
};

// Batches of another length each.
class Texts final : public Loader {
 public:
  void seek(std::int64_t, std::int64_t batch) override { batch_ = batch; }
  std::optional<Batch> next() override {
    if (batch_ == kBatches) return std::nullopt;
    const std::int64_t length = 16 + batch_++ * 37 % 15 * 16;
    const at::Tensor tokens = at::arange(8 * length).remainder(4000).view({8, length});
    return Batch{{"input_ids", tokens}, {"target", tokens}};
  }

 private:
  static constexpr std::int64_t kBatches = 15;
  std::int64_t batch_ = 0;
};

TEST_CASE("Texts of varying length take at most a fifth more memory with tune_process than without") {
  const Restored restored;
  const auto train = [] {
    TrainerOptions options;
    options.model = models::gpt({.vocabulary = 4000, .sequence_length = 256, .width = 32, .depth = 2, .heads = 2});
    options.train_dataloader = std::make_shared<Texts>();
    options.optimizer = optim::adamw({.lr = 1e-3});
    options.max_duration = "15ba";
    options.device = at::Device(at::kCPU);
    most_resident();
    const std::int64_t before = resident();
    Trainer(std::move(options)).fit();
    return most_resident() - before;
  };
  const std::int64_t without = train();
  tune_process();
  const std::int64_t with = train();
  MESSAGE("without: ", without >> 20, " MiB, with: ", with >> 20, " MiB");
  CHECK(with < without * 6 / 5);
}

TEST_CASE("empty_cpu_cache returns the memory of freed tensors to the system, small ones too") {
  const Restored restored;
  tune_process();
  const std::int64_t before = resident();
  std::vector<at::Tensor> tensors;
  for (const std::int64_t bytes : {1 << 10, 1 << 15, 1 << 20})
    for (std::int64_t left = std::int64_t{40} << 20; left > 0; left -= bytes)
      tensors.push_back(at::ones({bytes}, at::kByte));
  REQUIRE(resident() - before > std::int64_t{100} << 20);
  tensors = {};
  empty_cpu_cache();
  CHECK(resident() - before < std::int64_t{10} << 20);
}

#endif

TEST_CASE("10000 steps with three callbacks and a logger in memory take less than 2 MiB more") {
  constexpr std::int64_t kWarmUp = 500, kSteps = 10'000;
  auto memory = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options;
  options.model = models::mlp({.features = {784, 32, 10}});
  options.train_dataloader = data::in_memory(
      {{"input", at::rand({2048, 784})}, {"target", at::arange(2048).remainder(10)}}, {.batch_size = 32});
  options.optimizer = optim::sgd({.lr = 0.01, .momentum = 0.9});
  options.max_duration = Time(kWarmUp + kSteps, TimeUnit::BATCH);
  options.callbacks = {callbacks::SpeedMonitor(), callbacks::LRMonitor(), callbacks::NaNMonitor()};
  options.loggers = {memory};
  options.device = at::Device(at::kCPU);
  Trainer trainer(std::move(options));
  trainer.begin();
  const auto train_to = [&](std::int64_t batch) {
    while (trainer.state().timestamp.batch < batch) REQUIRE(trainer.step());
  };
  train_to(kWarmUp);
  const std::int64_t before = resident();
  train_to(kWarmUp + kSteps);
  const std::int64_t growth = resident() - before;
  MESSAGE("grew by ", growth / 1024, " KiB");
  CHECK(growth < 2 * 1024 * 1024);
  CHECK(memory->get_timeseries("loss/train/total").size() == kWarmUp + kSteps);  // nothing was thrown away
}

}  // namespace
}  // namespace composer::test::memory_test
