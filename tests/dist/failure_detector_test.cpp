#include "composer/dist/failure_detector.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "composer/dist/position.h"
#include "tests/dist/schedules.h"
#include "tests/support/doctest.h"

namespace composer::dist::failure_detector_test {
namespace {

using Action = FailureDetector::Action;
using Time = FailureDetector::Time;

// COMPOSER_SCHEDULES sets how many.
TEST_CASE(
    "in random schedules of failures and delays all ranks end in time, agree who is lost, and accuse nobody else") {
  const char* wanted = std::getenv("COMPOSER_SCHEDULES");
  const int count = wanted ? std::atoi(wanted) : 2000;
  const DetectorRules rules;
  for (int seed = 0; seed < count; ++seed) {
    const simulation::Trial trial = simulation::draw(static_cast<std::uint64_t>(seed), rules);
    const std::string broken = simulation::broken_promise(trial, rules);
    if (broken.empty()) continue;
    const std::string schedule = trial.schedule.text();
    CAPTURE(schedule);
    FAIL(broken);
  }
}

// Rank 1 of two, and what it hears of rank 0, which serves the store.
struct OfTwo {
  explicit OfTwo(int store_rank = 0) : detector(DetectorRules{}, 1, 2, store_rank, Time(0)) {}

  // Half a second passes.
  void step(const std::string& beat_of_other, const std::string& verdict = "-") {
    for (int i = 0; i < 5; ++i) {
      now += Time(100);
      last = detector.tick(now);
    }
    turn = detector.turn("BATCH_END, epoch 0, batch 3", calls);
    detector.heard(now, {beat_of_other, turn.beat}, verdict);
  }
  std::string beat(const std::string& phase_and_position) { return join(++beats, ' ', phase_and_position); }

  FailureDetector detector;
  FailureDetector::Turn turn;
  Action last = Action::NONE;
  Time now{0};
  int beats = 0;
  std::uint64_t calls = 0;
};

TEST_CASE("a rank whose heartbeat does not change for dead_after is accused, with its last position") {
  OfTwo two;
  for (int i = 0; i < 10; ++i) two.step(two.beat("w AFTER_LOSS, epoch 2, batch 7"));
  const std::string last = two.beat("w AFTER_LOSS, epoch 2, batch 8");
  for (int i = 0; i < 11; ++i) {
    two.step(last);
    CHECK(!two.turn.proposal);
  }
  two.step(last);  // 5.5 s
  two.step(last);
  REQUIRE(two.turn.proposal);
  CHECK(*two.turn.proposal ==
        "0|rank 0 gave no heartbeat for 5.5 s (killed, stopped or cut off); its last position was AFTER_LOSS, epoch 2, "
        "batch 8");
  CHECK(two.last == Action::NONE);  // not before the store says so
  two.step(last, *two.turn.proposal);
  CHECK(two.detector.verdict()->rank == 0);
  CHECK(two.detector.tick(two.now) == Action::ABORT);
  CHECK(two.detector.tick(two.now) == Action::NONE);
}

TEST_CASE("the first verdict in the store counts, not this rank's own") {
  OfTwo two;
  two.detector.fail("a bug");
  two.step(two.beat("w "), "0|rank 0 failed: another bug");
  CHECK(two.turn.proposal == "1|rank 1 failed: a bug");
  CHECK(two.detector.verdict()->rank == 0);
}

TEST_CASE("a process whose main thread does not take the verdict is ended by force, later if it has taken it") {
  for (const bool takes : {false, true}) {
    OfTwo two;
    two.step(two.beat("w "), "0|rank 0 failed: a bug");
    CHECK(two.detector.tick(two.now) == Action::ABORT);
    if (takes) two.detector.take();
    Time ended{0};
    for (Time later(0); later < Time(70000) && ended == Time(0); later += Time(100))
      if (two.detector.tick(two.now + later) == Action::EXIT) ended = later;
    CHECK(ended == Time(takes ? 60100 : 3100));
  }
}

TEST_CASE("a store that does not answer is the fault of the rank that serves it, or of the launcher") {
  for (const int store_rank : {0, -1}) {
    OfTwo two(store_rank);
    two.step(two.beat("w "));
    Action action = Action::NONE;
    while (action == Action::NONE && two.now < Time(20000)) action = two.detector.tick(two.now += Time(100));
    CHECK(action == Action::ABORT);
    CHECK(two.now == Time(5600));
    CHECK(two.detector.verdict()->rank == store_rank);
  }
}

TEST_CASE("a suspended process accuses nobody when it wakes up") {
  OfTwo two;
  for (int i = 0; i < 5; ++i) two.step(two.beat("w "));
  two.now += Time(60000);  // neither thread runs
  for (int i = 0; i < 20; ++i) {
    two.step(two.beat("w "));
    CHECK(!two.turn.proposal);
    CHECK(!two.detector.verdict());
  }
}

TEST_CASE("a suspended process whose peers have ended blames itself") {
  OfTwo two;
  for (int i = 0; i < 5; ++i) two.step(two.beat("w "));
  SUBCASE("the store is gone") {
    two.detector.store_failed(two.now + Time(60000), "Connection reset by peer");
    CHECK(two.detector.verdict()->rank == 1);
    CHECK(two.detector.verdict()->text == "rank 1 was suspended for 60.0 s, and the others ended without it");
  }
  SUBCASE("the store is there, but the others are silent") {
    two.now += Time(60000);
    for (int i = 0; i < 15; ++i) two.step("5 w ");
    REQUIRE(two.turn.proposal);
    CHECK(two.turn.proposal->starts_with("1|rank 1 was suspended for 60"));
  }
}

TEST_CASE("a rank leaves when all have finished, and not before") {
  OfTwo two;
  two.detector.leave();
  two.step(two.beat("w "));
  two.step(two.beat("b "));
  CHECK(!two.detector.has_left());
  two.step(two.beat("b "));
  CHECK(two.turn.proposal == FailureDetector::kFinished);
  two.step(two.beat("b "), std::string(FailureDetector::kFinished));
  CHECK(!two.detector.has_left());  // the rank that serves the store must read that this one knows
  two.step(two.beat("b "), std::string(FailureDetector::kFinished));
  CHECK(two.turn.beat.find(" l") != std::string::npos);
  CHECK(two.detector.has_left());
}

TEST_CASE("a rank that waits in one collective for one that has finished blames itself after a while") {
  for (const bool goes_on : {false, true}) {
    OfTwo two;
    two.calls = 7;
    for (int i = 0; i < 20; ++i) two.step(two.beat("w "));  // however long it works
    for (int i = 0; i < 15; ++i) {
      if (goes_on && i % 5 == 0) two.calls += 2;
      two.step(two.beat("b "));
      CHECK(!two.turn.proposal);
    }
    two.step(two.beat("b "));
    CHECK(two.turn.proposal.has_value() == !goes_on);
    if (!goes_on)
      CHECK(
          *two.turn.proposal ==
          "1|rank 1 waits for rank 0, which has finished: fit(), eval(), predict(), save_checkpoint() and other calls "
          "of a trainer are for all ranks; its last position was BATCH_END, epoch 0, batch 3");
  }
}

TEST_CASE("a rank that waits in a collective that one which has finished has ended does not blame it") {
  for (const std::string finished : {"b4 ", "b3 "}) {
    OfTwo two;
    two.calls = 7;  // in the fourth
    for (int i = 0; i < 100; ++i) two.step(two.beat(finished));
    CHECK(two.turn.proposal.has_value() == (finished == "b3 "));
  }
}

TEST_CASE("a position is a text with event, epoch and batch, or nothing before the first") {
  Position position;
  CHECK(position.text().empty());
  position.set("BATCH_END", 2, 17);
  CHECK(position.text() == "BATCH_END, epoch 2, batch 17");
}

}  // namespace
}  // namespace composer::dist::failure_detector_test
