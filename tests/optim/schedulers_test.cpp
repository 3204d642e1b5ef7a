#include "composer/optim/schedulers.h"

#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::optim::schedulers_test {
namespace {

// A run of 1000 batches an epoch, whose length is scaled with the schedule.
ScheduleContext at_batch(std::int64_t batch, double ratio = 1) {
  return {.timestamp = {.epoch = batch / 1000, .batch = batch},
          .max_duration = Time("1000ep") * ratio,
          .dataloader_len = 1000,
          .scale_schedule_ratio = ratio};
}

// Also that asking in another order changes nothing.
void check(const Scheduler& schedule, const std::vector<std::pair<std::int64_t, double>>& rows, double ratio = 1) {
  for (const auto& [batch, alpha] : rows) {
    CAPTURE(batch);
    CHECK(schedule(at_batch(batch, ratio)) == doctest::Approx(alpha).epsilon(1e-3));
  }
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    CHECK(schedule(at_batch(row->first, ratio)) == doctest::Approx(row->second).epsilon(1e-3));
  }
}

TEST_CASE("Schedules without a warm-up give the multipliers of Composer's own tests") {
  check(step({.step_size = "10ba"}), {{5, 1}, {15, .1}, {35, .001}});
  check(step({.step_size = "0.002dur", .gamma = .8}), {{1000, 1}, {3000, .8}, {7000, .512}});
  check(step({.step_size = "10ba", .gamma = .5}), {{3, 1}, {8, .5}, {18, .125}}, .5);
  check(multi_step({.milestones = {"100ba", "1ep", "0.01dur"}, .gamma = .5}),
        {{50, 1}, {500, .5}, {5000, .25}, {50000, .125}});
  check(multi_step({.milestones = {"100ba", "1ep", "0.01dur"}, .gamma = .5}),
        {{200, 1}, {2000, .5}, {20000, .25}, {200000, .125}}, 4);
  check(constant({.alpha = 2, .t_max = "10ba"}), {{0, 2}, {9, 2}, {10, 1}});
  check(linear(), {{100000, .9}, {200000, .8}, {400000, .6}});
  check(linear({.alpha_i = 0, .alpha_f = 1, .t_max = "0.25dur"}), {{100000, .4}, {200000, .8}, {400000, 1}});
  check(linear({.alpha_i = 0, .alpha_f = 1, .t_max = "0.25dur"}), {{100000, .2}, {200000, .4}, {400000, .8}}, 2);
  check(exponential({.gamma = .5}), {{1000, .5}, {2000, .25}, {4000, .0625}});
  check(exponential({.gamma = .5}), {{2000, .5}, {4000, .25}, {8000, .0625}}, 2);
  check(cosine_annealing(), {{0, 1}, {333333, .75}, {500000, .5}, {666667, .25}, {1000000, 0}});
  check(cosine_annealing({.t_max = "30ba", .alpha_f = .5}),
        {{0, 1}, {10, .875}, {15, .75}, {20, .625}, {30, .5}, {50, .5}});
  check(polynomial({.power = 2}), {{100000, .81}, {200000, .64}, {500000, .25}});
  check(polynomial({.power = 2, .t_max = "100ba", .alpha_f = .5}), {{10, .905}, {20, .82}, {50, .625}});
  check(polynomial({.power = 2, .t_max = "100ba", .alpha_f = .5}), {{10, .82}, {20, .68}, {50, .5}}, .5);
}

TEST_CASE("Warm restarts begin a new cycle where the last one ends") {
  check(cosine_annealing_warm_restarts({.t_0 = "30ba"}), {{0, 1}, {10, .75}, {15, .5}, {20, .25}, {30, 1}, {40, .75}});
  check(cosine_annealing_warm_restarts({.t_0 = "0.003dur", .t_mult = 1.5}),
        {{0, 1}, {1000, .75}, {3000, 1}, {4500, .75}, {7500, 1}, {14250, 1}});
  check(cosine_annealing_warm_restarts({.t_0 = "30ep", .t_mult = 2, .alpha_f = .5}),
        {{0, 1}, {5000, .875}, {15000, 1}, {25000, .875}}, .5);
  check(cosine_annealing_warm_restarts({.t_0 = "2ba", .t_mult = 1.2}), {{999'999, .5}, {1'000'000, 1}});

  const auto shrinking = cosine_annealing_warm_restarts({.t_0 = "4ba", .t_mult = .5});
  CHECK_NOTHROW(shrinking(at_batch(6)));
  CHECK_THROWS_WITH_AS(shrinking(at_batch(7)),
                       doctest::Contains("the length of a cycle has become 0; use a larger t_mult"), ConfigError);
  CHECK_NOTHROW(cosine_annealing_warm_restarts({.t_0 = "4ba", .t_mult = 1e300})(at_batch(1'000'000)));
}

TEST_CASE("A billion cycles of warm restarts are not walked through") {
  const auto schedule = cosine_annealing_warm_restarts({.t_0 = "2ba"});
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) CHECK(schedule(at_batch(2'000'000'001)) == doctest::Approx(.5));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
}

TEST_CASE("Schedules with a warm-up give the multipliers of Composer's own tests") {
  check(multi_step_with_warmup({.t_warmup = "10ba", .milestones = {"20ba", "40ba"}}),
        {{0, 0}, {5, .5}, {15, 1}, {25, .1}, {45, .01}});
  check(constant_with_warmup({.t_warmup = "500ep", .alpha = 3}), {{0, 0}, {250000, 1.5}, {500000, 3}, {502000, 3}});
  check(linear_with_warmup({.t_warmup = "500ep"}), {{0, 0}, {250000, .5}, {500000, 1}, {750000, .5}, {1000000, 0}});
  check(linear_with_warmup({.t_warmup = "500ep", .alpha_i = 3, .alpha_f = 2, .t_max = "1002ep"}),
        {{250000, 1.5}, {500000, 3}, {500500, 2.5}, {501000, 2}, {502000, 2}}, .5);
  check(cosine_annealing_with_warmup({.t_warmup = "0.9dur"}),
        {{450000, .5}, {900000, 1}, {933333, .75}, {950000, .5}, {1000000, 0}});
  check(polynomial_with_warmup({.t_warmup = "0.9dur"}),
        {{450000, .5}, {900000, 1}, {913397, .75}, {929289, .5}, {1000000, 0}});
}

TEST_CASE("The rest of a schedule starts where its scaled warm-up ends") {
  check(linear_with_warmup({.t_warmup = "500ba", .scale_warmup = true}),
        {{0, 0}, {125, .5}, {250, 1}, {250125, .5}, {500000, 0}}, .5);
  const std::vector<std::pair<std::int64_t, double>> longer = {{0, 0}, {4, .5}, {6, .75}, {7, .875}, {8, 1}, {9, 1}};
  check(linear_with_warmup({.t_warmup = "4ba", .scale_warmup = true}), longer, 2);
  check(constant_with_warmup({.t_warmup = "4ba", .scale_warmup = true}), longer, 2);
  check(cosine_annealing_with_warmup({.t_warmup = "4ba", .scale_warmup = true}), longer, 2);
  check(polynomial_with_warmup({.t_warmup = "4ba", .scale_warmup = true}), longer, 2);
  check(multi_step_with_warmup({.t_warmup = "4ba", .milestones = {"9ba"}, .scale_warmup = true}), longer, 2);
  check(multi_step_with_warmup({.t_warmup = "10ba", .milestones = {"20ba"}, .scale_warmup = true}),
        {{4, .8}, {5, 1}, {9, 1}, {10, .1}}, .5);
}

TEST_CASE("A warm-up that is scaled to nothing is left out, with a warning") {
  const test::Warnings warnings;
  const auto schedule = linear_with_warmup({.t_warmup = "4ba", .scale_warmup = true});
  CHECK(schedule(at_batch(0, .1)) == 1);
  CHECK(warnings.say("t_warmup 4ba is 0 in this run"));
}

TEST_CASE("A share of the run becomes batches, or the unit of the run") {
  ScheduleContext context{.max_duration = "7ep", .dataloader_len = 10};
  const auto resolved = [&](Time time, double ratio = 1) { return to_string(resolve(time, context, ratio)); };
  CHECK(resolved("0.2dur") == "14ba");
  CHECK(resolved("0.2dur", .5) == "14ba");
  CHECK(resolved("1ep") == "10ba");
  CHECK(resolved("1ep", .5) == "5ba");
  CHECK(resolved("3sp", .5) == "1sp");
  CHECK_THROWS_AS(resolved("3sec"), ConfigError);
  context.max_duration = "100ba";
  CHECK(resolved("0.29dur") == "28ba");
  CHECK(resolved("0.57dur") == "56ba");
  context.max_duration = "7sp";
  CHECK(resolved("0.2dur") == "1sp");
  context.dataloader_len = std::nullopt;
  CHECK(resolved("0.2dur") == "1sp");
  CHECK_THROWS_AS(resolved("1ep"), ConfigError);
  context.max_duration = "7ep";
  CHECK_THROWS_AS(resolved("0.2dur"), ConfigError);
}

TEST_CASE("What is wrong in itself is refused when the schedule is made") {
  CHECK_THROWS_WITH_AS(step({.step_size = "1h"}), "step: step_size must not be in seconds, got 3600sec", ConfigError);
  CHECK_THROWS_WITH_AS(linear({.t_max = "0ba"}), "linear: t_max must be > 0, got 0ba", ConfigError);
  CHECK_THROWS_AS(step({.step_size = "-1ba"}), ConfigError);
  CHECK_THROWS_AS(multi_step({.milestones = {"1ba", "1sec"}}), ConfigError);
  CHECK_THROWS_AS(exponential({}), ConfigError);
  CHECK_THROWS_AS(exponential({.gamma = .5, .decay_period = "0ba"}), ConfigError);
  CHECK_THROWS_AS(polynomial({}), ConfigError);
  CHECK_THROWS_AS(polynomial({.power = NAN}), ConfigError);
  CHECK_THROWS_AS(cosine_annealing({.t_max = "0dur"}), ConfigError);
  CHECK_THROWS_AS(cosine_annealing_warm_restarts({.t_0 = "1ba", .t_mult = -1}), ConfigError);
  CHECK_THROWS_AS(linear_with_warmup({.t_warmup = "1sec"}), ConfigError);
  CHECK_THROWS_AS(constant_with_warmup({.t_warmup = "1ba", .t_max = "1sec"}), ConfigError);
  CHECK_THROWS_AS(constant({.t_max = "nandur"}), ConfigError);
}

TEST_CASE("What is wrong for this run is refused by the first call") {
  const ScheduleContext run{.max_duration = "17ba", .dataloader_len = 5};
  CHECK_THROWS_WITH_AS(linear({.t_max = "0.01dur"})(run), doctest::Contains("0.01dur is 0ba in this run"), ConfigError);
  CHECK_THROWS_WITH_AS(linear_with_warmup({.t_warmup = "16sp"})(run),
                       "linear_with_warmup: t_warmup and t_max must have the same unit, got 16sp and 17ba",
                       ConfigError);
  CHECK_THROWS_WITH_AS(cosine_annealing_with_warmup({.t_warmup = "2ba", .t_max = "3ep"})(run),
                       "cosine_annealing_with_warmup: t_max must cover max_duration, got 15ba for a run of 17ba",
                       ConfigError);
  CHECK_NOTHROW(cosine_annealing_with_warmup({.t_warmup = "2ba", .t_max = "17ba"})(run));
  CHECK_NOTHROW(multi_step_with_warmup({.t_warmup = "16sp", .milestones = {"1ba"}})(run));
}

TEST_CASE("A warm-up that is longer than the run is warned of once, with both") {
  struct Row {
    Time t_warmup, max_duration;
    bool longer;
  };
  for (const auto& [t_warmup, max_duration, longer] :
       {Row{"5ep", "2ep", true}, Row{"11ba", "2ep", true}, Row{"10ba", "2ep", false}, Row{"2ep", "2ep", false},
        Row{"5ep", "20ba", true}, Row{"4ep", "20ba", false}, Row{"9sp", "8sp", true}, Row{"9sp", "2ba", false}}) {
    CAPTURE(t_warmup);
    CAPTURE(max_duration);
    const test::Warnings warnings;
    const auto schedule = multi_step_with_warmup({.t_warmup = t_warmup, .milestones = {"1ba"}});
    const ScheduleContext run{.max_duration = max_duration, .dataloader_len = 5};
    schedule(run);
    schedule(run);
    REQUIRE(warnings.texts.size() == (longer ? 1 : 0));
    if (longer)
      CHECK(warnings.texts[0] == join("multi_step_with_warmup: t_warmup ", t_warmup,
                                      " is longer than the run, whose max_duration is ", max_duration,
                                      ", so the learning rate does not reach its peak"));
  }
}

TEST_CASE("A warm-up that is 0 in this run is warned of once") {
  struct Count : c10::WarningHandler {
    void process(const c10::Warning&) override { ++count; }
    int count = 0;
  } warnings;
  c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  const auto schedule = linear_with_warmup({.t_warmup = "0.01dur"});
  const ScheduleContext run{.max_duration = "17ba", .dataloader_len = 5};
  CHECK(schedule(run) == 1);
  CHECK(schedule(run) == 1);
  CHECK(warnings.count == 1);
}

}  // namespace
}  // namespace composer::optim::schedulers_test
