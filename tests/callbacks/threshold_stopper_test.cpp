#include "composer/callbacks/threshold_stopper.h"

#include <cmath>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::threshold_stopper_test {

using callbacks::ThresholdStopper;
using callbacks::ThresholdStopperOptions;
using test::FakeRun;

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

TEST_CASE("ThresholdStopper refuses to be made without monitor, label or threshold") {
  CHECK_THROWS_WITH_AS(ThresholdStopper({.monitor = "", .dataloader_label = "eval", .threshold = 1}),
                       "ThresholdStopper: monitor and dataloader_label are required, got \"\" and \"eval\"",
                       ConfigError);
  CHECK_THROWS_AS(ThresholdStopper({.monitor = "acc", .dataloader_label = "", .threshold = 1}), ConfigError);
  CHECK_THROWS_WITH_AS(ThresholdStopper({.monitor = "acc", .dataloader_label = "eval"}),
                       "ThresholdStopper: threshold is required and must not be NaN", ConfigError);
}

}  // namespace composer::threshold_stopper_test
