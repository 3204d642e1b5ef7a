#include "composer/callbacks/threshold_stopper.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/warnings.h"

namespace composer::threshold_stopper_test {

using callbacks::ThresholdStopper;
using callbacks::ThresholdStopperOptions;
using test::FakeRun;

namespace {

// How often a stopper has said that it ends the run. It may also warn of a direction that it has guessed.
std::ptrdiff_t ends_said(const test::Warnings& warnings) {
  return std::ranges::count_if(warnings.texts,
                               [](const std::string& text) { return text.find("asks to end") != text.npos; });
}

}  // namespace

TEST_CASE("ThresholdStopper stops once the metric is better than the threshold") {
  struct Case {
    const char* why;
    ThresholdStopperOptions options;
    double value;
    bool stops;
  };
  const Case cases[] = {
      {"above", {"acc", "eval", 0.5}, 0.6, true},
      {"equal is not above", {"acc", "eval", 0.5}, 0.5, false},
      {"below", {"acc", "eval", 0.5}, 0.4, false},
      {"below, and lower is better", {"loss", "eval", 0.5}, 0.4, true},
      {"below, and lower was asked for", {"acc", "eval", 0.5, Better::LOWER}, 0.4, true},
      {"NaN", {"acc", "eval", 0.5}, NAN, false},
      {"NaN, and lower is better", {"loss", "eval", 0.5}, NAN, false},
  };
  for (const auto& [why, options, value, stops] : cases) {
    CAPTURE(why);
    ThresholdStopper stopper(options);
    FakeRun run;
    run.eval(stopper, "other", options.monitor, options.better == Better::LOWER ? -100 : 100);
    run.eval(stopper, "eval", options.monitor, value);
    CHECK(run.state.stop.asked() == stops);
  }
}

TEST_CASE("ThresholdStopper looks at metrics of training after batches only if told to") {
  for (const bool on_batch : {false, true}) {
    CAPTURE(on_batch);
    ThresholdStopper stopper(
        {.monitor = "acc", .dataloader_label = "train", .threshold = 0, .stop_on_batch = on_batch});
    FakeRun run;
    run.state.metrics.set("train", "acc", at::scalar_tensor(1.0));
    run.batch(stopper);
    CHECK(run.state.stop.asked() == on_batch);
    run.epoch(stopper);
    CHECK(run.state.stop.asked());
  }
}

TEST_CASE("ThresholdStopper says once, on one rank, why and when it ends the run") {
  for (const int rank : {0, 1}) {
    ThresholdStopper stopper({.monitor = "acc", .dataloader_label = "eval", .threshold = 0.5});
    FakeRun run;
    run.state.rank = rank;
    const test::Warnings warnings;
    for (const double value : {0.25, 0.75, 0.875}) {
      run.batch(stopper);
      run.epoch(stopper);
      run.eval(stopper, "eval", "acc", value);
    }
    CHECK(ends_said(warnings) == (rank == 0 ? 1 : 0));
    CHECK(warnings.say("ThresholdStopper: eval/acc is 0.75, beyond 0.5; it asks to end the run at epoch 2, batch 2") ==
          (rank == 0));
    run.state.stop.clear();
    run.eval(stopper, "eval", "acc", 0.75);
    CHECK(ends_said(warnings) == (rank == 0 ? 2 : 0));
  }
}

TEST_CASE("ThresholdStopper refuses to be made without monitor, label or threshold") {
  CHECK_THROWS_WITH_AS(ThresholdStopper({.monitor = "", .dataloader_label = "eval", .threshold = 1}),
                       "ThresholdStopper: monitor and dataloader_label are required, got \"\" and \"eval\"",
                       ConfigError);
  CHECK_THROWS_AS(ThresholdStopper({.monitor = "acc", .dataloader_label = "", .threshold = 1}), ConfigError);
  CHECK_THROWS_WITH_AS(ThresholdStopper({.monitor = "acc", .dataloader_label = "eval"}),
                       "ThresholdStopper: threshold is required and must not be NaN", ConfigError);
}

}  // namespace composer::threshold_stopper_test
