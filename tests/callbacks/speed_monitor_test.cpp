#include "composer/callbacks/speed_monitor.h"

#include <cmath>
#include <thread>

#include <ATen/ATen.h>
#include <torch/nn/modules/rnn.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/util/flop_counter.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny.h"

namespace composer::speed_monitor_test {

using callbacks::SpeedMonitor;
using callbacks::SpeedMonitorOptions;
using callbacks::WallClockUnit;
using test::FakeRun;
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

TEST_CASE("SpeedMonitor divides what all processes do by their number for what is of a device") {
  SpeedMonitor monitor({.window_size = 1, .gpu_flops_available = 1000});
  FakeRun run;
  run.state.model = Handle<Model>(std::make_shared<CountedModel>());
  run.state.world_size = 2;
  for (int i = 0; i < 2; ++i) run.batch(monitor, 4, 2, 20);
  for (const char* what : {"batches_per_sec", "samples_per_sec", "tokens_per_sec", "flops_per_sec"}) {
    CAPTURE(what);
    const double all = run.log.values[join("throughput/", what)].at(0);
    CHECK(run.log.values[join("throughput/device/", what)].at(0) == all / 2);
  }
  CHECK(run.log.values["throughput/device/mfu"] == std::vector{.125});
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
  for (int i = 0; i < 3; ++i) run.batch(monitor, 8, 100);
  CHECK(run.log.values["throughput/samples_per_sec"] == std::vector<double>{4, 4, 0.08});
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

TEST_CASE("FlopCounter counts products, convolutions, attention and LSTMs, forward and backward") {
  const auto counted = [](const std::function<at::Tensor()>& forward, bool backward = true) {
    FlopCounter counter;
    REQUIRE(counter.start());
    const at::Tensor result = forward();
    if (backward) result.sum().backward();
    return counter.stop();
  };
  const auto weights = [](at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); };
  const at::Tensor w = weights({5, 3}), wx = weights({4, 3}), data = at::randn({4, 3});
  CHECK(counted([&] { return at::linear(data, w); }, false) == 2 * 4 * 3 * 5);
  CHECK(counted([&] { return at::linear(data, w); }) == 2 * 2 * 4 * 3 * 5);  // and the gradient of w
  CHECK(counted([&] { return at::linear(wx, w); }) == 3 * 2 * 4 * 3 * 5);    // and that of wx
  const at::Tensor a = weights({2, 4, 3}), b = weights({2, 3, 6});
  CHECK(counted([&] { return at::matmul(a, b); }) == 3 * 2 * (2 * 4 * 3 * 6));

  const at::Tensor image = at::randn({2, 4, 9, 7}), kernel = weights({6, 4, 3, 3}), grouped = weights({6, 2, 3, 3});
  const std::int64_t one = 2 * 2 * (5 * 4) * (6 * 4 * 3 * 3);
  CHECK(counted([&] { return at::conv2d(image, kernel, {}, 2, 1); }) == 2 * one);
  CHECK(counted([&] { return at::conv2d(image, grouped, {}, 2, 1, 1, 2); }) == one);
  const at::Tensor up = weights({4, 6, 3, 3});
  CHECK(counted([&] { return at::conv_transpose2d(image, up); }, false) == 2 * 2 * (9 * 7) * (4 * 6 * 3 * 3));

  const at::Tensor q = weights({2, 3, 8, 4});
  const std::int64_t scores = 2 * 2 * 3 * 8 * 8 * 4;
  CHECK(counted([&] { return at::scaled_dot_product_attention(q, q, q); }) == 2 * scores + 5 * scores);

  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 5).num_layers(2));
  const at::Tensor steps = at::randn({7, 2, 3});
  const std::int64_t layers = 2 * 7 * 2 * (20 * (3 + 5) + 20 * (5 + 5));
  CHECK(counted([&] { return std::get<0>(lstm(steps)); }) == 3 * layers);
}

TEST_CASE("FlopCounter counts nothing of other threads, and one counts at a time") {
  FlopCounter counter, other;
  REQUIRE(counter.start());
  CHECK_FALSE(other.start());
  std::thread([] { at::mm(at::ones({9, 9}), at::ones({9, 9})); }).join();
  at::mm(at::ones({2, 3}), at::ones({3, 4}));
  CHECK(counter.stop() == 2 * 2 * 3 * 4);
  at::mm(at::ones({2, 3}), at::ones({3, 4}));
  CHECK(counter.stop() == 0);
  REQUIRE(other.start());
  CHECK(other.stop() == 0);
}

TEST_CASE("SpeedMonitor counts the FLOPs of the first batch if the model does not know them") {
  for (const std::int64_t microbatch : {0, 2}) {
    TrainerOptions options = test::tiny_options();
    options.device_train_microbatch_size = microbatch;
    options.train_dataloader = test::tiny_loader(14, 4);  // the last batch has 2 samples
    options.max_duration = "2ep";
    options.callbacks = {SpeedMonitor({.window_size = 1})};
    const auto log = std::make_shared<loggers::InMemoryLogger>();
    options.loggers = {log};
    Trainer(std::move(options)).fit();
    const auto flops = log->get_timeseries("throughput/flops_per_sec");
    const auto samples = log->get_timeseries("throughput/samples_per_sec");
    REQUIRE(flops.size() == 7);
    for (std::size_t i = 0; i < flops.size(); ++i)  // a sample: 4 x 3 weights, forward and their gradients
      CHECK(flops[i].number() == doctest::Approx(samples[i].number() * 2 * 2 * 4 * 3));
    CHECK(std::ranges::count(log->keys(), "throughput/device/mfu") == 0);  // no table of CPUs
  }
}

TEST_CASE("SpeedMonitor counts the FLOPs of all ranks, whose slices may differ in size") {
  dist::test::results_in_ranks(2, [](const std::shared_ptr<dist::World>& world) {
    const auto log = std::make_shared<loggers::InMemoryLogger>();
    TrainerOptions options = test::tiny_options();
    options.train_dataloader = test::tiny_loader(20, 5);
    options.max_duration = "2ep";
    options.callbacks = {SpeedMonitor({.window_size = 1})};
    options.loggers = {log};
    options.world = world;
    Trainer(std::move(options)).fit();
    if (world->rank() != 0) return 0;
    const auto flops = log->get_timeseries("throughput/flops_per_sec");
    const auto samples = log->get_timeseries("throughput/samples_per_sec");
    CHECK(flops.size() == 7);
    for (std::size_t i = 0; i < flops.size(); ++i)
      CHECK(flops[i].number() == doctest::Approx(samples[i].number() * 2 * 2 * 4 * 3));
    return 0;
  });
}

TEST_CASE("SpeedMonitor counts one batch only, also if there is nothing to count") {
  SpeedMonitor monitor({.window_size = 1});
  FakeRun run;
  run.state.model = Handle<Model>(test::tiny_model());
  FlopCounter other;
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    monitor.run_event(Event::BEFORE_TRAIN_BATCH, run.state, run.logger);
    CHECK(other.start() == (i > 0));  // one counts at a time
    other.stop();
    monitor.run_event(Event::AFTER_TRAIN_BATCH, run.state, run.logger);
    run.batch(monitor);
  }
}

TEST_CASE("SpeedMonitor does not count FLOPs if it shall not") {
  TrainerOptions options = test::tiny_options();
  options.callbacks = {SpeedMonitor({.window_size = 1, .count_flops = false})};
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  options.loggers = {log};
  Trainer(std::move(options)).fit();
  CHECK(std::ranges::count(log->keys(), "throughput/flops_per_sec") == 0);
}

}  // namespace composer::speed_monitor_test
