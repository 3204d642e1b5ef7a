// What a fit will be, without a trainer, and without training anything.
#include "composer/trainer/fit_planner.h"

#include <optional>
#include <string>

#include "composer/core/error.h"
#include "composer/optim/parameter_group.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"
#include "tests/trainer/trainer_parts.h"

namespace composer::test::fit_planner_test {
namespace {

using Remaining = FitHistory::Remaining;

struct Planning : TrainerParts {
  using TrainerParts::TrainerParts;
  FitPlan plan(const FitOptions& given, Remaining remaining = Remaining::ALL, bool needs_loader = true) const {
    return planner.plan(given, remaining, needs_loader);
  }
  void be_at(std::int64_t epoch, std::int64_t batch, std::int64_t batch_in_epoch) {
    state.timestamp.epoch = epoch;
    state.timestamp.batch = batch;
    state.timestamp.batch_in_epoch = batch_in_epoch;
  }

  FitPlanner planner{.options = options,
                     .ranks = ranks,
                     .state = state,
                     .engine = engine,
                     .process = process.settings,
                     .train_step = train_step,
                     .data = data,
                     .rates = rates,
                     .evaluators = evaluations,
                     .settings = settings,
                     .fits = fits,
                     .resumption = resumption,
                     .checkpoints = checkpoints};
};

std::string text_of(const OptionalTime& time) { return time ? to_string(*time) : "none"; }

TEST_CASE("A fit ends at the trainer's max_duration, or a duration after where it begins") {
  Planning trainer;
  trainer.be_at(/*epoch=*/0, /*batch=*/3, /*batch_in_epoch=*/3);
  struct Case {
    FitOptions fit;
    const char *goal, *until;
    std::int64_t from;
  };
  const Case cases[] = {
      {{}, "1ep", "1ep", 3},
      {{.duration = "2ep"}, "2ep", "2ep", 3},
      {{.duration = "4ba"}, "7ba", "7ba", 3},
      {{.duration = "4ba", .reset_time = true}, "4ba", "4ba", 0},
      {{.duration = "4ba", .schedulers = {[](const auto&) { return 1.0; }}, .scale_schedule_ratio = 2},
       "7ba",
       "14ba",
       3},
  };
  for (const auto& [fit, goal, until, from] : cases) {
    CAPTURE(goal);
    CAPTURE(until);
    const FitPlan plan = trainer.plan(fit);
    CHECK(text_of(plan.goal) == goal);
    CHECK(text_of(plan.until) == until);
    CHECK(plan.from.batch == from);
    CHECK(plan.counted_from.batch == from);
  }
}

TEST_CASE("What is left of a fit counts from where that fit had begun") {
  Planning trainer;
  trainer.fits.begin({}, Time("4ba"));
  trainer.fits.repeat();
  trainer.be_at(/*epoch=*/0, /*batch=*/3, /*batch_in_epoch=*/3);
  const FitPlan plan = trainer.plan({.duration = "4ba", .reset_time = true}, Remaining::REST);
  CHECK(text_of(plan.until) == "4ba");
  CHECK(plan.from.batch == 3);
  CHECK(plan.counted_from.batch == 0);
  CHECK_FALSE(plan.reset_time);
}

TEST_CASE("A fit of which nothing is left has a goal and no end of its own") {
  Planning trainer;
  const FitPlan plan = trainer.plan({.duration = "4ba"}, Remaining::NOTHING);
  CHECK(text_of(plan.goal) == "1ep");
  CHECK(text_of(plan.until) == "none");
}

TEST_CASE("What a fit does not say stays as the trainer has it") {
  const Planning trainer;
  const FitPlan plan = trainer.plan({});
  CHECK(plan.feed.loader() == trainer.data.feed().loader());
  CHECK(plan.precision == Precision::FP32);
  CHECK_FALSE(plan.microbatch_size);
  CHECK_FALSE(plan.metrics);
  CHECK(plan.evaluators.empty());
  CHECK(plan.rates.base() == std::vector<double>{0.1});
}

TEST_CASE("What a fit is given is in its plan, and not in the trainer before it comes into force") {
  Planning trainer;
  const FitPlan plan = trainer.plan({.train_dataloader = tiny_loader(8, 2),
                                     .train_dataloader_label = "other",
                                     .duration = "5ba",
                                     .reset_time = true,
                                     .schedulers = {[](const auto&) { return 0.5; }},
                                     .eval_dataloader = tiny_loader(8, 4),
                                     .device_train_microbatch_size = 1});
  CHECK(plan.feed.label() == "other");
  CHECK(plan.feed.num_batches() == 4);
  CHECK(plan.metrics);
  CHECK(plan.microbatch_size->samples() == 1);
  CHECK(plan.reset_time);
  REQUIRE(plan.evaluators.size() == 1);
  CHECK(plan.evaluators.front().feed.label() == "eval");

  CHECK(trainer.data.feed().label() == "train");
  CHECK(text_of(trainer.state.max_duration) == "1ep");
  CHECK(trainer.state.device_train_microbatch_size == 0);
  CHECK(trainer.evaluations.runs().empty());
  CHECK(optim::learning_rates(*trainer.state.optimizer) == std::vector<double>{0.1});
  CHECK_FALSE(trainer.fits.last);
}

TEST_CASE("A fit that cannot be done is refused, and why") {
  struct Case {
    const char* why;
    FitOptions fit;
    bool needs_loader = true;
  };
  Planning trainer;
  trainer.be_at(/*epoch=*/1, /*batch=*/4, /*batch_in_epoch=*/0);
  const Case cases[] = {
      {"there is nothing to do; give fit() a duration, or reset_time", {}},
      {"duration: is 0ba, so there is nothing to do", {.duration = "0ba"}},
      {"duration: must be in ep, ba, sp, tok, iter or sec, got 0.5dur", {.duration = "0.5dur"}},
      {"scale_schedule_ratio: 2 has no effect without schedulers in the same fit()",
       {.duration = "1ep", .scale_schedule_ratio = 2}},
      {"step_schedulers_every_batch: has no effect without schedulers in the same fit()",
       {.duration = "1ep", .step_schedulers_every_batch = true}},
      {"\"train\"",
       {.duration = "1ep", .eval_dataloader = Evaluator{.label = "train", .dataloader = tiny_loader(4, 4)}}},
  };
  for (const auto& [why, fit, needs_loader] : cases) {
    CAPTURE(why);
    CHECK_THROWS_WITH_AS(trainer.plan(fit, Remaining::ALL, needs_loader), doctest::Contains(why), ConfigError);
  }
}

TEST_CASE("Without a loader a fit is given batches, and without a limit it needs a caller who ends it") {
  TrainerOptions options = tiny_options();
  options.train_dataloader = {};
  options.max_duration = {};
  const Planning trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.plan({}), doctest::Contains("train_dataloader: is required to fit"), ConfigError);
  const FitPlan plan = trainer.plan({}, Remaining::ALL, /*needs_loader=*/false);
  CHECK_FALSE(plan.feed);
  CHECK(text_of(plan.until) == "none");
  CHECK_THROWS_WITH_AS(trainer.plan({.train_dataloader = tiny_loader(8, 2)}),
                       doctest::Contains("max_duration: is required to fit"), ConfigError);
}

TEST_CASE("A loader that is given in the midst of an epoch has the place that training has come to") {
  Planning trainer;
  trainer.be_at(/*epoch=*/0, /*batch=*/3, /*batch_in_epoch=*/3);
  CHECK(trainer.plan({.train_dataloader = tiny_loader(16, 4)}).feed.num_batches() == 4);
  CHECK_THROWS_AS(trainer.plan({.train_dataloader = tiny_loader(8, 4)}), ConfigError);
}

TEST_CASE("Options of what a fit is not given are told to have no effect") {
  const Planning trainer;
  const Warnings warnings;
  (void)trainer.plan({.train_dataloader_label = "other", .eval_subset_num_batches = 3});
  CHECK(warnings.say("eval_subset_num_batches have no effect"));
  CHECK(warnings.say("train_dataloader_label has no effect"));
}

TEST_CASE("One rank has nobody to compare its plan with") {
  const Planning trainer;
  trainer.planner.check_ranks(trainer.plan({}));
}

}  // namespace
}  // namespace composer::test::fit_planner_test
