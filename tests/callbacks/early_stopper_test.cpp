#include "composer/callbacks/early_stopper.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/warnings.h"

namespace composer::early_stopper_test {

using callbacks::EarlyStopper;
using callbacks::EarlyStopperOptions;
using test::FakeRun;

namespace {

struct Case {
  const char* why;
  EarlyStopperOptions options;
  std::vector<double> one_per_epoch;
  std::int64_t stops_at;  // the epoch; 0: never
};

std::string error(EarlyStopperOptions options) {
  try {
    const EarlyStopper stopper(std::move(options));
  } catch (const ConfigError& thrown) {
    return thrown.what();
  }
  return "nothing was thrown";
}

// How often a stopper has said that it ends the run. It may also warn of a direction that it has guessed.
std::ptrdiff_t ends_said(const test::Warnings& warnings) {
  return std::ranges::count_if(warnings.texts,
                               [](const std::string& text) { return text.find("asks to end") != text.npos; });
}

}  // namespace

TEST_CASE("EarlyStopper ends the run one epoch after its patience") {
  const Case cases[] = {
      {"improving", {"acc", "eval"}, {.1, .2, .3, .4}, 0},
      {"equal is no gain", {"acc", "eval"}, {.5, .5, .5, .5}, 3},
      {"a gain of min_delta is none", {"acc", "eval", Better::HIGHER, .125}, {.5, .625, .625, .9}, 3},
      {"a gain of more is one", {"acc", "eval", Better::HIGHER, .125}, {.5, .7, .7, .9}, 0},
      {"lower is better", {"loss", "eval", Better::LOWER}, {3, 2, 1, 1, 1, 1}, 5},
      {"lower by its name", {"loss", "eval"}, {3, 2, 1, 1, 1, 1}, 5},
      {"lower by its name in any case", {"CrossEntropy", "eval"}, {3, 2, 1, 1, 1, 1}, 5},
      {"NaN is no best", {"loss", "eval", Better::LOWER}, {NAN, 2, 1, NAN, NAN}, 5},
      {"NaN for ever", {"loss", "eval", Better::LOWER}, {NAN, NAN, NAN, NAN}, 3},
      {"worse, but better again in time", {"acc", "eval"}, {.5, .4, .6, .5, .7}, 0},
      {"no patience", {"acc", "eval", {}, 0, "0ep"}, {.5, .6, .6, .7}, 3},
      {"in batches, four an epoch", {"acc", "eval", {}, 0, "7ba"}, {.5, .5, .5, .5}, 3},
      {"in batches, the bound itself", {"acc", "eval", {}, 0, "8ba"}, {.5, .5, .5, .5}, 4},
  };
  for (const auto& [why, options, values, stops_at] : cases) {
    CAPTURE(why);
    EarlyStopper stopper(options);
    FakeRun run;
    std::int64_t stopped_at = 0;
    for (const double value : values) {
      for (int i = 0; i < 4; ++i) run.batch(stopper);
      run.epoch(stopper);
      run.eval(stopper, options.dataloader_label, options.monitor, value);
      if (stopped_at == 0 && run.state.stop.asked()) stopped_at = run.state.timestamp.epoch;
    }
    CHECK(stopped_at == stops_at);
  }
}

TEST_CASE("EarlyStopper judges metrics of training at the end of epochs, and of batches if patience is in batches") {
  const auto train = [](EarlyStopperOptions options, int epochs) {
    EarlyStopper stopper(std::move(options));
    FakeRun run;
    run.state.metrics.set("train", "acc", at::scalar_tensor(0.5));
    for (int i = 0; i < epochs && !run.state.stop.asked(); ++i) {
      for (int j = 0; j < 4 && !run.state.stop.asked(); ++j) run.batch(stopper);
      run.epoch(stopper);
    }
    return run.state.stop.asked() ? run.state.timestamp.batch : 0;
  };
  CHECK(train({.monitor = "acc", .dataloader_label = "train", .patience = "1ep"}, 3) == 12);
  CHECK(train({.monitor = "acc", .dataloader_label = "train", .patience = "3ba"}, 3) == 5);
  CHECK(train({.monitor = "acc", .dataloader_label = "eval", .patience = "3ba"}, 3) == 0);
}

TEST_CASE("EarlyStopper does not judge an old value at another evaluator's turn") {
  EarlyStopper stopper({.monitor = "acc", .dataloader_label = "eval", .patience = "0ep"});
  FakeRun run;
  run.eval(stopper, "eval", "acc", 0.5);
  run.epoch(stopper);
  run.eval(stopper, "other", "acc", 0.1);
  CHECK_FALSE(run.state.stop.asked());
  run.eval(stopper, "eval", "acc", 0.5);
  CHECK(run.state.stop.asked());
  CHECK(
      run.state.stop.why() ==
      "EarlyStopper: eval/acc has not improved for longer than 0ep; it is 0.5, and its best value is 0.5, of epoch 0, "
      "batch 0");
}

TEST_CASE("EarlyStopper says once, on one rank, why and when it ends the run") {
  for (const int rank : {0, 1}) {
    EarlyStopper stopper({.monitor = "acc", .dataloader_label = "eval", .patience = "0ep"});
    FakeRun run;
    run.state.rank = rank;
    const test::Warnings warnings;
    for (const double value : {0.25, 0.5, 0.375, 0.125}) {
      run.batch(stopper);
      run.epoch(stopper);
      run.eval(stopper, "eval", "acc", value);
    }
    CHECK(ends_said(warnings) == (rank == 0 ? 1 : 0));
    CHECK(
        warnings.say("EarlyStopper: eval/acc has not improved for longer than 0ep; it is 0.375, and its best value is "
                     "0.5, of epoch 2, batch 2; it asks to end the run at epoch 3, batch 3") == (rank == 0));
    run.state.stop.clear();
    run.eval(stopper, "eval", "acc", 0.125);
    CHECK(ends_said(warnings) == (rank == 0 ? 2 : 0));
  }
  EarlyStopper stopper({.monitor = "acc", .dataloader_label = "eval", .patience = "0ep"});
  FakeRun run;
  const test::Warnings warnings;
  for (int i = 0; i < 2; ++i) {
    run.eval(stopper, "eval", "acc", NAN);
    run.batch(stopper);
    run.epoch(stopper);
  }
  run.eval(stopper, "eval", "acc", NAN);
  CHECK(warnings.say(
      "for longer than 0ep; it is nan, and it has had no best value; it asks to end the run at epoch 1, batch 1"));
}

TEST_CASE("EarlyStopper fails at the first evaluation that has no such metric") {
  EarlyStopper stopper({.monitor = "acc", .dataloader_label = "eval"});
  FakeRun run;
  CHECK_THROWS_WITH_AS(run.eval(stopper, "eval", "Accuracy", 0.5),
                       "there is no metric \"eval/acc\"; reported are: eval/Accuracy", ConfigError);
}

TEST_CASE("EarlyStopper goes on waiting when the run counts from zero again") {
  EarlyStopper stopper({.monitor = "acc", .dataloader_label = "eval"});
  FakeRun run;
  const auto epoch = [&](double value) {
    run.batch(stopper);
    run.epoch(stopper);
    run.eval(stopper, "eval", "acc", value);
  };
  for (const double value : {.1, .2, .3, .4, .5}) epoch(value);
  run.state.timestamp = {};
  for (const double value : {.5, .5}) epoch(value);
  CHECK_FALSE(run.state.stop.asked());
  epoch(.5);
  CHECK(run.state.stop.asked());
}

TEST_CASE("EarlyStopper refuses options that make no sense") {
  CHECK(error({.monitor = "", .dataloader_label = "eval"}) ==
        "EarlyStopper: monitor and dataloader_label are required, got \"\" and \"eval\"");
  CHECK(error({.monitor = "acc", .dataloader_label = ""}) ==
        "EarlyStopper: monitor and dataloader_label are required, got \"acc\" and \"\"");
  CHECK(error({"acc", "eval", {}, -1}) == "EarlyStopper: min_delta must be >= 0, got -1");
  CHECK(error({"acc", "eval", {}, NAN}) == "EarlyStopper: min_delta must be >= 0, got nan");
  CHECK(error({"acc", "eval", {}, 0, "3sp"}) == "EarlyStopper: patience must be in ep or ba, got 3sp");
  CHECK(error({"acc", "eval", {}, 0, "-1ep"}) == "EarlyStopper: patience must be >= 0, got -1ep");
}

}  // namespace composer::early_stopper_test
