#include "composer/trainer/training_time.h"

#include <optional>
#include <stdexcept>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/step/batch_ranks.h"
#include "composer/trainer/fit_history.h"
#include "composer/trainer/learning_rates.h"
#include "composer/trainer/ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::test::training_time_test {
namespace {

// A fit of batches of 4 samples, four an epoch.
struct OneFit {
  OneFit() {
    state.max_duration = "2ep";
    data.begin(options, ranks, state);
    fit.emplace(data, ranks, Fit::Holds{.loader = {}, .process = ProcessClaim(settings)});
  }

  TrainerOptions options = tiny_options();
  ProcessSettings settings;  // a claim keeps its address
  Ranks ranks{nullptr, {}};
  State state;
  Logger logger{state, {}};
  LearningRates rates;
  FitHistory fits;
  TrainingData data;
  std::optional<Fit> fit;
  TrainingTime time{state, logger, ranks, rates, fits, fit};
};

const BatchCounts kFour{.samples = 4};

TEST_CASE("A batch is counted when what it has shown is reported, also if that fails, and what follows is unfinished") {
  OneFit run;
  run.time.count_batch_after(kFour, [&] { CHECK(run.state.timestamp.batch == 0); });
  CHECK(run.state.timestamp.batch == 1);
  CHECK(run.state.timestamp.sample == 4);
  CHECK(run.state.previous_timestamp->batch == 0);
  CHECK_THROWS_AS(run.time.count_batch_after(kFour, [] { throw std::runtime_error("no space"); }), std::runtime_error);
  CHECK(run.state.timestamp.batch == 2);
  REQUIRE(run.fits.unfinished);
  CHECK(run.fits.unfinished->from == Unfinished::END);
  CHECK(run.fits.unfinished->ended == Event::BATCH_END);
  CHECK(run.fits.unfinished->checkpoint == Event::BATCH_CHECKPOINT);
}

TEST_CASE("An epoch is complete when all its batches are counted, and over when it is counted itself") {
  OneFit run;
  for (int batch = 0; batch < 4; ++batch) {
    CHECK_FALSE(run.time.progress().epoch_is_complete());
    run.time.count_batch_after(kFour, [] {});
  }
  CHECK(run.time.progress().epoch_is_complete());
  run.time.count_epoch();
  CHECK(run.state.timestamp.epoch == 1);
  CHECK(run.state.timestamp.batch_in_epoch == 0);
  CHECK(run.fits.unfinished->ended == Event::EPOCH_END);
}

TEST_CASE("The limit is that of the state, and a fit whose caller decides when it ends has none") {
  OneFit run;
  run.state.timestamp.epoch = 2;
  CHECK(run.time.limit_reached());
  run.fit->limited = false;
  CHECK_FALSE(run.time.limit_reached());
  CHECK_FALSE(run.time.progress().limit);
  run.fit.reset();
  CHECK(run.time.limit_reached());
  CHECK_FALSE(run.time.progress().epoch_length);
}

TEST_CASE("Iterations of tokens that end within the first epoch never let an epoch end") {
  OneFit run;
  run.state.iteration_length = "8tok";
  CHECK_THROWS_WITH_AS(run.time.count_iteration(), doctest::Contains("would never be reached"), ConfigError);
  run.state.max_duration = "20ba";
  CHECK_NOTHROW(run.time.count_iteration());
  CHECK(run.state.timestamp.iteration == 2);
}

}  // namespace
}  // namespace composer::test::training_time_test
