#include "composer/callbacks/speed_monitor.h"

#include <cmath>

#include <doctest/doctest.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/state_dict.h"
#include "tests/support/fake_run.h"

using namespace composer;
using composer::callbacks::SpeedMonitor;
using composer::callbacks::SpeedMonitorOptions;
using composer::callbacks::WallClockUnit;
using composer::test::FakeRun;
using Keys = std::vector<std::string>;

namespace {

struct CountedModel final : Model {
  Outputs forward(const Batch& batch) override { return batch.front(); }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.front(); }
  std::optional<double> flops_per_batch(const Batch&) const override { return 500; }
};

}  // namespace

TEST_CASE("SpeedMonitor averages over the window, from the batch on that fills it") {
  SpeedMonitor monitor({.window_size = 2});
  FakeRun run;
  const double seconds[] = {9, 1, 2, 4, 8};
  const std::int64_t samples[] = {100, 6, 9, 3, 9};
  for (int i = 0; i < 5; ++i) run.batch(monitor, samples[i], seconds[i]);
  // of batches 2 and 3, 3 and 4, 4 and 5
  CHECK(run.log.values["throughput/batches_per_sec"] == std::vector<double>{2. / 3, 2. / 6, 2. / 12});
  CHECK(run.log.values["throughput/samples_per_sec"] == std::vector<double>{15. / 3, 12. / 6, 12. / 12});
  CHECK(run.log.values["throughput/device/samples_per_sec"] == run.log.values["throughput/samples_per_sec"]);
  CHECK(run.log.values["throughput/device/batches_per_sec"] == run.log.values["throughput/batches_per_sec"]);
  CHECK_FALSE(run.log.values.contains("throughput/tokens_per_sec"));
  CHECK_FALSE(run.log.values.contains("throughput/flops_per_sec"));
}

TEST_CASE("SpeedMonitor logs in Composer's order and groups") {
  SpeedMonitor monitor({.window_size = 1, .gpu_flops_available = 1000});
  FakeRun run;
  run.state.model = Handle<Model>(std::make_shared<CountedModel>());
  run.batch(monitor, 4, 2, 20);
  CHECK(run.log.calls == std::vector<Keys>{{"time/train", "time/val", "time/total"}});
  run.log.calls.clear();
  run.batch(monitor, 4, 2, 20);
  CHECK(run.log.calls == std::vector<Keys>{{"throughput/batches_per_sec", "throughput/samples_per_sec",
                                            "throughput/device/batches_per_sec", "throughput/device/samples_per_sec"},
                                           {"throughput/tokens_per_sec", "throughput/device/tokens_per_sec"},
                                           {"throughput/flops_per_sec", "throughput/device/flops_per_sec"},
                                           {"throughput/device/mfu"},
                                           {"time/train", "time/val", "time/total"}});
  CHECK(run.log.values["throughput/tokens_per_sec"] == std::vector{10.});
  CHECK(run.log.values["throughput/flops_per_sec"] == std::vector{250.});
  CHECK(run.log.values["throughput/device/mfu"] == std::vector{.25});
}

TEST_CASE("SpeedMonitor counts evaluation apart, in the unit asked for") {
  const std::pair<WallClockUnit, double> cases[] = {{WallClockUnit::SECONDS, 1},
                                                    {WallClockUnit::MINUTES, 60},
                                                    {WallClockUnit::HOURS, 3600},
                                                    {WallClockUnit::DAYS, 86400}};
  for (const auto& [unit, divisor] : cases) {
    SpeedMonitor monitor({.time_unit = unit});
    FakeRun run;
    run.batch(monitor, 4, 10);
    run.state.eval_timestamp.total_wct = Seconds(3);
    run.eval(monitor, "eval", "acc", 1);
    run.eval(monitor, "other", "acc", 1);
    run.batch(monitor, 4, 10);
    CHECK(run.log.values["time/train"] == std::vector{10 / divisor, 20 / divisor});
    CHECK(run.log.values["time/val"] == std::vector{0., 6 / divisor});
    CHECK(run.log.values["time/total"].back() == doctest::Approx(26 / divisor));
  }
}

TEST_CASE("SpeedMonitor begins a new window when the run counts from zero again") {
  SpeedMonitor monitor({.window_size = 2});
  FakeRun run;
  for (int i = 0; i < 4; ++i) run.batch(monitor);
  run.state.timestamp = {};
  for (int i = 0; i < 3; ++i) run.batch(monitor, 8);
  CHECK(run.log.values["throughput/samples_per_sec"] == std::vector<double>{4, 4, 8});
}

TEST_CASE("SpeedMonitor begins an empty window when the saved one is not possible") {
  for (const char* field : {"newest", "filled"}) {
    SpeedMonitor monitor({.window_size = 2});
    StateDict saved;
    StateVisitor save = StateVisitor::saving(saved);
    monitor.visit_state(save);
    saved[field] = std::int64_t{100'000'000};
    StateVisitor load = StateVisitor::loading(saved, "");
    monitor.visit_state(load);
    FakeRun run;
    for (int i = 0; i < 4; ++i) run.batch(monitor);
    CHECK(run.log.values["throughput/batches_per_sec"].size() == 2);
  }
}

TEST_CASE("SpeedMonitor logs no throughput of a clock that stands still") {
  SpeedMonitor monitor({.window_size = 1});
  FakeRun run;
  for (int i = 0; i < 3; ++i) run.batch(monitor, 4, 0);
  CHECK_FALSE(run.log.values.contains("throughput/batches_per_sec"));
}

TEST_CASE("SpeedMonitor refuses options that make no sense") {
  CHECK_THROWS_WITH_AS(SpeedMonitor({.window_size = 0}), "SpeedMonitor: window_size must be from 1 to 1000000, got 0",
                       ConfigError);
  CHECK_THROWS_WITH_AS(SpeedMonitor({.gpu_flops_available = NAN}),
                       "SpeedMonitor: gpu_flops_available must be >= 0, got nan", ConfigError);
  CHECK_THROWS_AS(SpeedMonitor({.gpu_flops_available = -1}), ConfigError);
}
