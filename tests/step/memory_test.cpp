#include <fstream>
#include <unistd.h>

#include <doctest/doctest.h>

#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/models/mlp.h"
#include "tests/support/tiny.h"

namespace composer::test {
namespace {

// Bytes of this process that are in memory.
std::int64_t resident() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  REQUIRE(resident > 0);
  return resident * ::sysconf(_SC_PAGESIZE);
}

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
}  // namespace composer::test
