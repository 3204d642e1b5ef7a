// Which of several ways is found the fastest, on machines that are quiet, busy for a while, and busy all the time. The
// machine is made up: a clock, and programs that take its processors.
#include "composer/tuning/trials.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "composer/util/processors.h"
#include "composer/util/random.h"
#include "tests/support/doctest.h"

namespace composer::trials_test {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::vector<TrialRound> rounds_of(const std::vector<std::vector<double>>& ways) {
  std::vector<TrialRound> rounds(ways[0].size());
  for (std::size_t i = 0; i < rounds.size(); ++i)
    for (const std::vector<double>& times : ways) rounds[i].seconds.push_back(times[i]);
  return rounds;
}

TEST_CASE("The other way is faster only if most rounds say so, by more than they differ among themselves") {
  struct Row {
    const char* what;
    std::vector<double> now, other;
    bool faster;
  };
  const std::vector<Row> rows = {
      {"a tenth faster each time", {10, 10, 10, 10, 10}, {9, 9, 9, 9, 9}, true},
      {"2 % are not worth a change", {10, 10, 10, 10, 10}, {9.8, 9.8, 9.8, 9.8, 9.8}, false},
      {"slower", {10, 10, 10}, {11, 11, 11}, false},
      {"one lucky trial of the other", {10, 10, 10, 10, 10}, {5, 10, 10, 10, 10}, false},
      {"one lucky trial of what is in use", {5, 10, 10, 10, 10}, {9, 9, 9, 9, 9}, false},
      {"one unlucky trial of the other", {10, 10, 10, 10, 10}, {9, 9, 50, 9, 9}, true},
      {"the machine became slower in the middle", {10, 10, 20, 20, 20}, {9, 9, 18, 18, 18}, true},
      {"faster in the median, slower as often as not", {10, 10, 10, 10, 10}, {9, 9, 9, 12, 12}, false},
      {"the fewest rounds", {10, 10, 10}, {9, 9, 9.5}, true},
      {"the fewest rounds, which do not agree", {10, 10, 10}, {9, 9, 10.5}, false},
      {"left out of the last rounds", {10, kNever, kNever}, {4, 4, 4}, true},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    CHECK((judge(rounds_of({row.now, row.other}), {0, 1}, 3).way == 1) == row.faster);
  }
}

// Times of one way, each up to a half longer than the shortest: the shortest of five differ by 3 % quite often.
TEST_CASE("A way that varies by a half is found faster than itself in fewer than one of fifty decisions") {
  RandomStream random(7);
  int changes = 0, changes_by_shortest = 0;
  constexpr int kDecisions = 2000;
  const auto times = [&](int trials) {
    std::vector<double> made;
    for (int i = 0; i < trials; ++i) {
      const double delay = static_cast<double>(random.below(1000)) / 1000;
      made.push_back(1 + 0.5 * delay);
    }
    return made;
  };
  for (int i = 0; i < kDecisions; ++i) {
    const std::vector<double> now = times(25), other = times(25);
    changes += judge(rounds_of({now, other}), {0, 1}, 3).way == 1 ? 1 : 0;
    const auto shortest_of_5 = [](const std::vector<double>& all) {
      return *std::min_element(all.begin(), all.begin() + 5);
    };
    changes_by_shortest += shortest_of_5(other) < 0.97 * shortest_of_5(now) ? 1 : 0;
  }
  CHECK(changes < kDecisions / 50);
  CHECK(changes_by_shortest > kDecisions / 5);  // so the times above do tell the two rules apart
}

TEST_CASE("Of ways within 3 % of the fastest, the one that changes the fewest settings is taken") {
  const std::vector<TrialRound> rounds =
      rounds_of({{10, 10, 10}, {6, 6, 6}, {6.1, 6.1, 6.1}, {6.5, 6.5, 6.5}});  // all but the first save a third
  CHECK(judge(rounds, {0, 3, 1, 1}, 3).way == 2);
  CHECK(judge(rounds, {0, 1, 3, 1}, 3).way == 1);
  CHECK(judge(rounds, {0, 2, 2, 1}, 3).way == 1);
}

TEST_CASE("Rounds that were disturbed do not count, unless there are no others") {
  std::vector<TrialRound> rounds = rounds_of({{10, 40, 10, 10, 40}, {12, 9, 12, 12, 9}});
  CHECK(judge(rounds, {0, 1}, 3).way == 0);
  for (const std::size_t busy : {0, 2, 3}) rounds[busy].disturbed = true;  // the others say the opposite
  CHECK(judge(rounds, {0, 1}, 2).way == 1);
  CHECK_FALSE(judge(rounds, {0, 1}, 2).disturbed);
  CHECK(judge(rounds, {0, 1}, 3).way == 0);
  CHECK(judge(rounds, {0, 1}, 3).disturbed);
}

// Two processors. From the beginning until `until`, another program keeps both of them busy.
class Machine {
 public:
  explicit Machine(double until) : until_(until), times_([this] { return times(); }) {}

  // With one thread, a step then takes half as long again. Two threads wait for each other, which is much worse.
  double run(double alone, int threads) {
    const double took = alone * (is_busy() ? (threads == 1 ? 1.5 : 4) : 1);
    if (is_busy()) {
      others_ += took;
      preempted_ += static_cast<std::int64_t>(100 * took);
    }
    own_ += alone * threads;
    now_ += took;
    return took;
  }
  double now() const { return now_; }

 private:
  bool is_busy() const { return now_ < until_; }
  util::ProcessorTimes times() const {
    return {.wall = now_, .own = own_, .all = own_ + others_, .preempted = preempted_, .processors = 2};
  }

  double until_;
  double now_ = 0, own_ = 0, others_ = 0;
  std::int64_t preempted_ = 0;
  util::ProcessorTimesAre times_;
};

// bf16 or fp32, with two threads or one, as `scripts/train --fast` measured them.
struct Settings {
  double alone;
  int threads, changes;
};
const std::vector<Settings> kSettings = {{.036, 2, 0}, {.054, 1, 1}, {.052, 2, 1}, {.085, 1, 2}};

Verdict on(Machine& machine, double& patience) {
  Contest contest;
  for (const Settings& settings : kSettings) contest.changes.push_back(settings.changes);
  contest.time = [&](std::size_t way) { return machine.run(kSettings[way].alone, kSettings[way].threads); };
  return fastest_of(contest, {.least = 3, .most = 25, .seconds = 1}, patience);
}

TEST_CASE("On a quiet machine a contest ends as soon as there are enough rounds, without what is hopeless") {
  Machine machine(0);
  double patience = 20;
  const Verdict verdict = on(machine, patience);
  CHECK(verdict.way == 0);
  CHECK_FALSE(verdict.disturbed);
  CHECK(patience == 20);
  CHECK(machine.now() < 1.3);
  CHECK(verdict.seconds == std::vector{.036, .054, .052, .085});
}

TEST_CASE("A program that is busy for a while delays a contest, and does not decide it") {
  for (const double busy : {0.3, 3., 19.}) {
    CAPTURE(busy);
    Machine machine(busy);
    double patience = 20;
    const Verdict verdict = on(machine, patience);
    CHECK(verdict.way == 0);
    CHECK_FALSE(verdict.disturbed);
    CHECK(patience > 0);
    CHECK(machine.now() < busy + 2.5);
  }
}

TEST_CASE(
    "Where the machine stays busy, a contest ends when its patience does, with what is fastest there, and says so") {
  Machine machine(1000);
  double patience = 20;
  const Verdict verdict = on(machine, patience);
  CHECK(verdict.way == 1);  // one thread in bf16, though either change alone does not pay as much
  CHECK(verdict.disturbed);
  CHECK(patience <= 0);
  CHECK(machine.now() < 21);
  const double before = machine.now();
  CHECK(on(machine, patience).disturbed);  // a second one with the same patience has no more of it
  CHECK(machine.now() < before + 2.5);
}

TEST_CASE("Work in one thread is timed without what other programs take, and work in several is not") {
  const WorkClock clock;
  const double processor_before = util::processor_times().own, before = util::processor_times().wall;
  while (util::processor_times().wall - before < 0.02) {
  }
  const double one = clock.seconds(/*one_thread=*/true), several = clock.seconds(/*one_thread=*/false);
  CHECK(several >= 0.02);
  CHECK(one <= several);
  CHECK(one <= util::processor_times().own - processor_before + 0.005);  // getrusage() is a little behind
  CHECK(one > 0);
}

TEST_CASE("Ways that depend on each other are compared together") {
  // Alone, each change makes it worse; together they make it better.
  const std::vector<TrialRound> rounds = rounds_of({{10, 10, 10}, {12, 12, 12}, {11, 11, 11}, {6, 6, 6}});
  CHECK(judge(rounds, {0, 1, 1, 2}, 3).way == 3);
}

}  // namespace
}  // namespace composer::trials_test
