#include "composer/callbacks/runtime_estimator.h"

#include <cmath>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/in_memory_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::runtime_estimator_test {

using callbacks::RuntimeEstimator;
using callbacks::RuntimeEstimatorOptions;
using callbacks::WallClockUnit;
using test::FakeRun;

namespace {

const char* const kKey = "time/remaining_estimate";

RuntimeEstimator in_seconds(std::int64_t skip_batches = 1) {
  return RuntimeEstimator({.skip_batches = skip_batches, .time_unit = WallClockUnit::SECONDS});
}

void evaluate(FakeRun& run, Callback& callback, const std::string& label, double seconds) {
  run.state.eval_timestamp.total_wct = Seconds(seconds);
  run.eval(callback, label, "acc", 1);
}

// What is logged, rounded to a millionth.
std::vector<double> estimates(FakeRun& run) {
  std::vector<double> rounded;
  for (const double value : run.log.values[kKey]) rounded.push_back(std::round(value * 1e6) / 1e6);
  return rounded;
}

}  // namespace

TEST_CASE("RuntimeEstimator skips the first batches, then multiplies the time per batch by the batches left") {
  RuntimeEstimator estimator = in_seconds(2);
  FakeRun run;
  run.state.max_duration = "8ba";
  for (const double seconds : {100., 50., 1., 3., 2., 2., 1., 3.}) run.batch(estimator, 4, seconds);
  CHECK(estimates(run) == std::vector<double>{5 * 1., 4 * 2., 3 * 2., 2 * 2., 1 * 1.8, 0});
}

TEST_CASE("RuntimeEstimator without skipped batches estimates after the first") {
  RuntimeEstimator estimator = in_seconds(0);
  FakeRun run;
  run.state.max_duration = "4ba";
  run.batch(estimator, 4, 2);
  CHECK(estimates(run) == std::vector<double>{6});
}

TEST_CASE("RuntimeEstimator knows what is done of a max_duration in any unit") {
  struct Row {
    const char* max_duration;
    double left;  // after 3 batches of 4 samples, 20 tokens and 2 seconds each, in epochs of 5 batches
  };
  for (const auto& [max_duration, left] :
       {Row{"10ba", 14}, Row{"2ep", 14}, Row{"40sp", 14}, Row{"200tok", 14}, Row{"20sec", 14}, Row{"3iter", 24}}) {
    CAPTURE(max_duration);
    RuntimeEstimator estimator = in_seconds();
    FakeRun run;
    run.state.max_duration = Time::parse(max_duration);
    run.state.iteration_length = "1ep";
    run.state.dataloader_len = 5;
    for (int i = 0; i < 3; ++i) run.batch(estimator, 4, 2, 20);
    CHECK(estimates(run).back() == left);
  }
}

TEST_CASE("RuntimeEstimator measures iterations of tokens by tokens") {
  RuntimeEstimator estimator = in_seconds();
  FakeRun run;
  run.state.max_duration = "3iter";
  run.state.iteration_length = "100tok";
  for (int i = 0; i < 3; ++i) run.batch(estimator, 4, 2, 20);
  CHECK(estimates(run).back() == 24);
}

TEST_CASE("RuntimeEstimator with a loader of unknown length estimates from the second epoch on") {
  RuntimeEstimator estimator = in_seconds();
  FakeRun run;
  run.state.max_duration = "3ep";
  for (int i = 0; i < 4; ++i) run.batch(estimator, 4, 2);
  CHECK(estimates(run).empty());
  run.epoch(estimator);
  run.batch(estimator, 4, 2);
  CHECK(estimates(run) == std::vector<double>{14});
}

TEST_CASE("RuntimeEstimator adds the evaluations to come, by label, without the first of several") {
  RuntimeEstimator estimator = in_seconds(0);
  FakeRun run;
  run.state.max_duration = "8ba";
  run.batch(estimator);
  run.batch(estimator);
  evaluate(run, estimator, "eval", 10);  // 3 more to come
  CHECK(estimates(run) == std::vector<double>{7, 6});
  run.batch(estimator);
  CHECK(estimates(run).back() == 5 + 30);
  run.batch(estimator);
  evaluate(run, estimator, "eval", 4);   // 2 more of 4 seconds
  evaluate(run, estimator, "other", 1);  // 1 more
  run.batch(estimator);
  CHECK(estimates(run).back() == 3 + 8 + 1);
}

TEST_CASE("RuntimeEstimator ignores evaluations before the measured batches") {
  RuntimeEstimator estimator = in_seconds(1);
  FakeRun run;
  run.state.max_duration = "4ba";
  evaluate(run, estimator, "eval", 100);
  run.batch(estimator);
  run.batch(estimator);
  CHECK(estimates(run) == std::vector<double>{2});
}

TEST_CASE("RuntimeEstimator logs in its unit, and says which") {
  const std::pair<WallClockUnit, double> cases[] = {{WallClockUnit::SECONDS, 1},
                                                    {WallClockUnit::MINUTES, 60},
                                                    {WallClockUnit::HOURS, 3600},
                                                    {WallClockUnit::DAYS, 86400}};
  for (const auto& [unit, divisor] : cases) {
    RuntimeEstimator estimator({.skip_batches = 0, .time_unit = unit});
    FakeRun run;
    run.state.max_duration = "3ba";
    run.batch(estimator, 4, 86400);
    REQUIRE(run.log.values[kKey].size() == 1);
    CHECK(run.log.values[kKey].front() == doctest::Approx(2 * 86400 / divisor));
    estimator.init(run.state, run.logger);
    CHECK(std::get<std::string>(run.logger.hyperparameters().at("time/remaining_estimate_unit")) == to_string(unit));
  }
}

TEST_CASE("RuntimeEstimator estimates the rest of the fit that runs, also with another max_duration") {
  RuntimeEstimator estimator = in_seconds();
  FakeRun run;
  run.state.max_duration = "3ba";
  for (int i = 0; i < 3; ++i) run.batch(estimator, 4, 2);
  CHECK(estimates(run) == std::vector<double>{2, 0});
  run.state.max_duration = "10ba";
  run.batch(estimator, 4, 2);
  CHECK(estimates(run).back() == 12);
}

TEST_CASE("RuntimeEstimator measures anew when the run counts from zero again") {
  RuntimeEstimator estimator = in_seconds();
  FakeRun run;
  run.state.max_duration = "5ba";
  for (int i = 0; i < 3; ++i) run.batch(estimator, 4, 2);
  evaluate(run, estimator, "eval", 10);
  run.state.timestamp = {};
  run.batch(estimator, 4, 100);
  run.batch(estimator, 4, 1);
  CHECK(estimates(run) == std::vector<double>{6, 4, 3});
}

TEST_CASE("RuntimeEstimator of a resumed run estimates as if it had not been interrupted") {
  RuntimeEstimator estimator = in_seconds(), resumed = in_seconds();
  FakeRun run, other;
  run.state.max_duration = other.state.max_duration = "10ba";
  for (int i = 0; i < 4; ++i) run.batch(estimator, 4, i + 1);
  evaluate(run, estimator, "eval", 10);
  StateDict saved;
  StateVisitor save = StateVisitor::saving(saved);
  estimator.visit_state(save);
  StateVisitor load = StateVisitor::loading(saved, "");
  resumed.visit_state(load);
  other.state.timestamp = run.state.timestamp;
  run.batch(estimator, 4, 7);
  other.batch(resumed, 4, 7);
  CHECK(estimates(other) == std::vector{estimates(run).back()});
  CHECK(estimates(other).front() == 5 * 4 + 2 * 10);
}

TEST_CASE("RuntimeEstimator warns once of a fit without a max_duration, and estimates nothing") {
  RuntimeEstimator estimator = in_seconds(0);
  FakeRun run;
  run.state.max_duration = {};
  const test::Warnings warnings;
  for (int i = 0; i < 3; ++i) run.batch(estimator);
  CHECK(warnings.texts.size() == 1);
  CHECK(warnings.say("RuntimeEstimator: there is no max_duration"));
  CHECK(run.log.values.empty());
}

TEST_CASE("RuntimeEstimator in a trainer logs from the second batch on, and 0 at the last") {
  TrainerOptions options = test::tiny_options();
  options.max_duration = "2ep";
  options.callbacks = {in_seconds()};
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  options.loggers = {log};
  Trainer(std::move(options)).fit();
  const auto series = log->get_timeseries(kKey);
  REQUIRE(series.size() == 7);
  CHECK(series.front().timestamp.batch == 2);
  CHECK(series.front().number() > 0);
  CHECK(series.back().number() == 0);
}

TEST_CASE("RuntimeEstimator rejects a negative number of batches to skip, and an unknown unit") {
  CHECK_THROWS_WITH_AS(RuntimeEstimator({.skip_batches = -1}), "RuntimeEstimator: skip_batches must be >= 0, got -1",
                       ConfigError);
  CHECK_THROWS_AS(RuntimeEstimator({.time_unit = static_cast<WallClockUnit>(9)}), ConfigError);
}

}  // namespace composer::runtime_estimator_test
