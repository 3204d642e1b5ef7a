// The parts of FailureDetector, each alone.
#include "composer/dist/heartbeats.h"

#include <chrono>
#include <string>
#include <vector>

#include "composer/dist/awake_clock.h"
#include "composer/dist/judgement.h"
#include "composer/dist/store_contact.h"
#include "tests/support/doctest.h"

namespace composer::dist::heartbeats_test {
namespace {

using Time = std::chrono::milliseconds;

constexpr Time kDeadAfter{5000};

TEST_CASE("an awake clock counts a step up to its limit, and takes a longer one for a suspension") {
  AwakeClock clock(Time(1000), Time(50));
  CHECK(clock.awake() == Time(0));
  clock.advance(Time(1050));
  CHECK(clock.awake() == Time(1000));
  clock.advance(Time(900));  // never back
  CHECK(clock.now().real == Time(1050));
  CHECK(clock.awake() == Time(1000));
  CHECK(*clock.suspended_within(Time(2000)) == Time(0));
  CHECK_FALSE(clock.suspended_within(Time(1000)));
  const AwakeClock::Moment before = clock.now();
  clock.advance(Time(9050));
  CHECK(clock.awake() == Time(2000));
  CHECK((clock.now() - before).real == Time(8000));
  CHECK((clock.now() - before).awake == Time(1000));
  CHECK(*clock.suspended_within(Time(1)) == Time(8000));
  clock.advance(Time(9550));
  CHECK(*clock.suspended_within(Time(501)) == Time(8000));
  CHECK_FALSE(clock.suspended_within(Time(500)));
}

TEST_CASE("the contact to the store keeps its last long gap, on both clocks") {
  StoreContact store(Time(4000), {Time(100), Time(0)});
  CHECK(store.answered({Time(600), Time(500)}).real == Time(500));
  CHECK(store.gap().real == Time(0));
  CHECK(store.unanswered({Time(4600), Time(1750)}) == Time(1250));
  CHECK(store.answered({Time(4600), Time(1750)}).awake == Time(1250));
  CHECK(store.gap().real == Time(4000));
  store.answered({Time(4700), Time(1850)});
  CHECK(store.gap().awake == Time(1250));
  CHECK_FALSE(store.is_lost());
  store.set_lost();
  CHECK(store.is_lost());
}

TEST_CASE("the first proposal stays, and a verdict is in force only if the store gave it") {
  Judgement judged;
  CHECK(judged.is_open());
  judged.propose({1, "first"});
  judged.propose({2, "second"});
  CHECK(judged.proposal()->text == "first");
  CHECK_FALSE(judged.is_open());
  judged.propose_own_verdict();  // there is none yet
  CHECK(judged.proposal()->rank == 1);
  judged.decide({0, "the store is gone"}, Time(100));
  judged.decide({3, "later"}, Time(200));
  CHECK(judged.verdict()->rank == 0);
  CHECK(judged.age(Time(150)) == Time(50));
  CHECK_FALSE(judged.in_force());
  judged.propose_own_verdict();
  CHECK(judged.proposal()->text == "the store is gone");
  judged.enforce({4, "of the store"}, Time(300));
  CHECK(judged.in_force());
  CHECK(judged.verdict()->rank == 0);
  CHECK(judged.age(Time(300)) == Time(200));
  CHECK(judged.act_once());
  CHECK_FALSE(judged.act_once());
}

TEST_CASE("a phase is known to be stored once the heartbeat that was written with it is") {
  OwnBeats own;
  CHECK(own.next(0, "here") == "1 w0 here");
  own.enter(RankPhase::BYE);  // while that one is on its way
  own.stored();
  CHECK(own.is_stored(RankPhase::WORKING));
  CHECK_FALSE(own.is_stored(RankPhase::BYE));
  CHECK(own.next(12, "there") == "2 b12 there");
  CHECK_FALSE(own.is_stored(RankPhase::BYE));
  own.stored();
  CHECK(own.is_stored(RankPhase::BYE));
}

TEST_CASE("a heartbeat is read as it was written, and one that is damaged counts as a sign of life only") {
  Heartbeats ranks(2, 1, kDeadAfter);
  OwnBeats other;
  other.enter(RankPhase::TOLD);
  ranks.read({other.next(7, "BATCH_END, epoch 0, batch 3"), ""}, Time(500));
  CHECK(ranks[0].phase == RankPhase::TOLD);
  CHECK(ranks[0].collectives == 7);
  CHECK(ranks[0].position == "BATCH_END, epoch 0, batch 3");
  CHECK(ranks[0].silence == Time(0));
  CHECK(ranks[1].silence == Time(500));
  for (const char* damaged : {"", "x", "2 ", "2 b"}) {
    CAPTURE(damaged);
    ranks.read({damaged, ""}, Time(500));
    CHECK(ranks[0].silence == Time(0));
    CHECK(ranks[0].phase == RankPhase::TOLD);
  }
}

TEST_CASE("one long wait makes no rank lost, and of several that are lost the longest silent is named") {
  Heartbeats ranks(4, 0, kDeadAfter);
  ranks.read({"", "1 w", "1 w", "1 b0 there"}, Time(500));
  ranks.read({"", "1 w", "1 w", "1 b0 there"}, Time(60000));
  CHECK(ranks.longest_lost() == -1);
  ranks.read({"", "2 w", "1 w", "1 b0 there"}, Time(2000));
  CHECK(ranks.longest_lost() == 2);
  CHECK(ranks.is_lost(3));  // but it has finished
  for (int i = 0; i < 3; ++i) ranks.read({"", "2 w", "1 w", "1 b0 there"}, Time(3000));
  CHECK(ranks.is_lost(1));
  CHECK(ranks.longest_lost() == 2);
  CHECK_FALSE(ranks.all_others([&](int rank) { return rank != 3; }));
  CHECK(ranks.all_others([&](int rank) { return rank != 0; }));
}

TEST_CASE("after a gap a rank must be heard of several times before its silence is its fault") {
  Heartbeats ranks(2, 0, kDeadAfter);
  CHECK(ranks.has_enough_news(1));
  ranks.note_gap();
  for (const char* beat : {"1 w", "2 w"}) ranks.read({"", beat}, Time(500));
  CHECK_FALSE(ranks.has_enough_news(1));
  ranks.read({"", "3 w"}, Time(500));
  CHECK(ranks.has_enough_news(1));
}

TEST_CASE("a rank is named as elsewhere if it is the only one at another position") {
  Heartbeats ranks(3, 0, kDeadAfter);
  ranks.read({"1 w0 loss", "1 w0 loss", "1 w0 loss"}, Time(0));
  CHECK(ranks.only_one_elsewhere() == -1);
  ranks.read({"2 w0 loss", "2 w0 loss", "2 w0 eval"}, Time(0));
  CHECK(ranks.only_one_elsewhere() == 2);
  ranks.read({"3 w0 loss", "3 w0 save", "3 w0 eval"}, Time(0));
  CHECK(ranks.only_one_elsewhere() == -1);
  ranks.read({"4 w0 loss", "4 b0 save", "4 w0 eval"}, Time(0));
  CHECK(ranks.positions() == "rank 0: loss; rank 1: has called shutdown(); rank 2: eval");
  CHECK(Heartbeats(1, 0, kDeadAfter).positions() == "rank 0: unknown");
}

TEST_CASE("a rank waits for one that has finished only within a collective that the other has not ended") {
  Heartbeats ranks(3, 0, kDeadAfter);
  ranks.read({"1 b0 here", "1 b5 there", "1 w5 there"}, Time(0));  // its own phase says nothing
  CollectiveWait wait(3);
  const auto waits = [&](std::uint64_t calls) {
    wait.at(calls);
    return wait.add(Time(600), ranks, Time(1000));
  };
  CHECK(waits(10) == -1);
  CHECK(waits(10) == -1);  // in none
  CHECK(waits(9) == -1);
  CHECK(waits(9) == -1);  // in the fifth, which the other has ended
  CHECK(waits(11) == -1);
  CHECK(wait.ended() == 5);
  CHECK(waits(13) == -1);  // in another one: it is counted anew
  CHECK(waits(13) == 1);
}

}  // namespace
}  // namespace composer::dist::heartbeats_test
