#include "composer/core/interval.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::interval_test {
namespace {

// A run of batches of two samples, and the moments at which something asks whether it is due.
struct Run {
  Time interval, max_duration;
  std::int64_t batches_per_epoch = 4;
  bool asked_last_at_fit_end = true;  // as evaluators are; savers are asked at the last batch and epoch
  Timestamp now = {};
  std::int64_t last_due = -1;
  std::string due = {};  // "3 6 8*": batches, with a star what is due only because training ends

  void ask(std::optional<Boundary> boundary, const Timestamp& previous, bool last) {
    IntervalMoment moment{.boundary = boundary,
                          .last = last,
                          .previous = previous,
                          .now = now,
                          .last_due_batch = last_due,
                          .max_duration = max_duration,
                          .dataloader_len = batches_per_epoch};
    if (!interval_due(interval, moment)) return;
    moment.last = false;
    if (!due.empty()) due += ' ';
    due += std::to_string(now.batch) + (interval_due(interval, moment) ? "" : "*");
    last_due = now.batch;
  }

  std::string operator()() {
    const auto ended = [&] { return now.reached(max_duration); };
    while (!ended()) {
      Timestamp previous = now;
      now = now.to_next_batch(2);
      ask(Boundary::BATCH, previous, !asked_last_at_fit_end && ended());
      if (now.batch_in_epoch < batches_per_epoch) continue;
      previous = now;
      now = now.to_next_epoch();
      ask(Boundary::EPOCH, previous, !asked_last_at_fit_end && ended());
    }
    if (asked_last_at_fit_end) ask(std::nullopt, now, true);
    return due;
  }
};

TEST_CASE("Evaluators are due when their interval is crossed, and at the end if they were not at the last batch") {
  struct Row {
    Time interval, max_duration;
    const char* due;
  };
  const Row rows[] = {
      {"1ep", "2ep", "4 8"},    {"4ba", "2ep", "4 8"},     {"3ba", "2ep", "3 6 8*"}, {"3ba", "6ba", "3 6"},
      {"1ep", "6ba", "4 6*"},   {"5ep", "2ep", "8*"},      {"0.5dur", "2ep", "4 8"}, {"0.3dur", "2ep", "3 6 8*"},
      {"0.5dur", "6ba", "3 6"}, {"0.5dur", "10sp", "3 5"}, {"5sp", "2ep", "3 5 8"},  {"2sp", "2ep", "1 2 3 4 5 6 7 8"},
      {"1sp", "3ba", "1 2 3"},  {"1sec", "2ep", "8*"},     {"3tok", "2ep", "8*"},    {"2iter", "2ep", "8*"},
      {"2dur", "2ep", "8*"},    {"infdur", "2ep", "8*"},   {"1e22dur", "2ep", "8*"}, {"0ep", "2ep", ""},
      {"0ba", "2ep", ""},       {"0dur", "2ep", ""},       {"-1ba", "2ep", ""},      {"-0.5dur", "2ep", ""},
      {"nandur", "2ep", ""},
  };
  for (const auto& [interval, max_duration, due] : rows) {
    CAPTURE(interval);
    CAPTURE(max_duration);
    CHECK(Run{.interval = interval, .max_duration = max_duration}() == due);
  }
}

TEST_CASE("Savers are due at the last batch or epoch as well") {
  struct Row {
    Time interval, max_duration;
    const char* due;
  };
  for (const auto& [interval, max_duration, due] : {Row{"1ep", "2ep", "4 8"},
                                                    {"4ba", "2ep", "4 8"},
                                                    {"3ba", "2ep", "3 6 8*"},
                                                    {"1ep", "6ba", "4 6*"},
                                                    {"5ep", "2ep", "8*"},
                                                    {"0.3dur", "2ep", "3 6 8*"},
                                                    {"0ba", "2ep", ""}}) {
    CAPTURE(interval);
    CAPTURE(max_duration);
    CHECK(Run{.interval = interval, .max_duration = max_duration, .asked_last_at_fit_end = false}() == due);
  }
}

TEST_CASE("The number of times that something is due") {
  struct Row {
    Time interval, max_duration;
    int times;
  };
  for (const auto& [interval, max_duration, times] : {Row{"1ep", "5ep", 5},
                                                      {"2ep", "8ep", 4},
                                                      {"10ba", "8ep", 4},
                                                      {"0.25dur", "4ep", 4},
                                                      {"5ba", "4ep", 4},
                                                      {"5ba", "10ba", 2},
                                                      {"0.35dur", "4ep", 3},
                                                      {"0.01dur", "100ba", 100},
                                                      {"0.10dur", "70sp", 10},
                                                      {"0.05dur", "80sp", 20}}) {
    CAPTURE(interval);
    CAPTURE(max_duration);
    Run run{.interval = interval, .max_duration = max_duration, .batches_per_epoch = 5};
    const std::string due = run();
    CHECK(std::ranges::count(due, ' ') + 1 == times);
  }
}

TEST_CASE("An interval is due at just those batches in which a multiple of it was counted") {
  std::mt19937_64 random(11);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int i = 0; i < 2'000; ++i) {
    const std::int64_t every = 1 + below(20);
    Timestamp now;
    for (int batch = 0; batch < 20; ++batch) {
      const Timestamp previous = now;
      now = now.to_next_batch(below(30));
      bool counted = false;
      for (std::int64_t sample = previous.sample + 1; sample <= now.sample; ++sample) counted |= sample % every == 0;
      const IntervalMoment moment{.boundary = Boundary::BATCH, .previous = previous, .now = now};
      CHECK(interval_due(Time(every, TimeUnit::SAMPLE), moment) == counted);
    }
  }
}

TEST_CASE("Each unit is due at its own boundary") {
  const Timestamp before, after{.iteration = 1, .epoch = 1, .batch = 1};
  const auto due = [&](Time interval, Boundary boundary) {
    return interval_due(interval, {.boundary = boundary, .previous = before, .now = after});
  };
  for (Boundary boundary : {Boundary::BATCH, Boundary::EPOCH, Boundary::ITERATION}) {
    CHECK(due("1ba", boundary) == (boundary == Boundary::BATCH));
    CHECK(due("1ep", boundary) == (boundary == Boundary::EPOCH));
    CHECK(due("1iter", boundary) == (boundary == Boundary::ITERATION));
  }
}

TEST_CASE("A share of a run needs a loader of known length, but a run of length 0 divides by nothing") {
  IntervalMoment moment{.boundary = Boundary::BATCH, .now = {.batch = 1}, .max_duration = "2ep"};
  CHECK_THROWS_AS(interval_due("0.5dur", moment), ConfigError);
  moment.dataloader_len = 0;
  CHECK_FALSE(interval_due("0.5dur", moment));
  moment.dataloader_len = 4;
  moment.max_duration = "0ep";
  CHECK_FALSE(interval_due("0.5dur", moment));
  moment.max_duration = std::nullopt;
  CHECK_THROWS_AS(interval_due("0.5dur", moment), ConfigError);
}

TEST_CASE("An interval is a time, or a number of epochs that is not whole, and its text is read again") {
  struct Row {
    const char *text, *time, *written;
    double epochs;
  };
  for (const auto& [text, time, written, epochs] : {
           Row{"0.25ep", "1ep", "0.25ep", 0.25},
           Row{"1.5 EP", "2ep", "1.5ep", 1.5},
           Row{"1e-1ep\n", "1ep", "0.1ep", 0.1},
           Row{"2.0ep", "2ep", "2ep", 0},
           Row{"0.0ep", "0ep", "0ep", 0},
           Row{"3ba", "3ba", "3ba", 0},
           Row{"0.5dur", "0.5dur", "0.5dur", 0},
           Row{"1h", "3600sec", "3600sec", 0},
       }) {
    CAPTURE(text);
    const Interval interval = Interval::parse(text);
    CHECK(interval.time() == Time::parse(time));
    CHECK(interval.epochs() == epochs);
    CHECK(to_string(interval) == written);
    const Interval again = Interval::parse(to_string(interval));
    CHECK(to_string(again) == written);
    CHECK(again.epochs() == epochs);
  }
  for (const char* text : {"-0.5ep", "0.5ba", "0.5sp", "ep", ".ep", "0.5", "nanep", "1e-400ep"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(Interval::parse(text), ConfigError);
  }
  constexpr Interval kQuarter = "0.25ep";
  const Interval copy = kQuarter;
  CHECK(copy.epochs() == 0.25);
}

}  // namespace
}  // namespace composer::interval_test
