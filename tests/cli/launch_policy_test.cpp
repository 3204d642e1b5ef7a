// Which rank is to blame, and when ranks are ended; without processes.
#include "composer/cli/launch_policy.h"

#include <csignal>

#include "tests/support/doctest.h"

namespace composer::test::launch_policy_test {
namespace {

using cli::Ending;
using cli::EndPolicy;
using Action = EndPolicy::Action;
using Time = EndPolicy::Time;

constexpr Ending kGood{}, kFailed{.code = 3}, kLostPeer{.code = cli::kPeerLost}, kTerminated{.signal = SIGTERM},
    kKilled{.signal = SIGKILL};

EndPolicy policy_of(int ranks) { return {ranks, Time(10), Time(2)}; }

TEST_CASE("An ending is described as a person would, and has the exit code of a shell") {
  CHECK(to_string(kFailed) == "exited with 3");
  CHECK(to_string(kKilled) == "was killed by SIGKILL (out of memory?)");
  CHECK(to_string(Ending{.signal = SIGSEGV, .core_dumped = true}) == "was killed by SIGSEGV (core dumped)");
  CHECK(to_string(Ending{.signal = SIGRTMIN + 1}).starts_with("was killed by signal "));
  CHECK(kFailed.status() == 3);
  CHECK(kKilled.status() == 137);
}

TEST_CASE("Nothing is done while ranks run or end with 0, and all of them good is 0") {
  EndPolicy policy = policy_of(2);
  CHECK((policy.next(Time(100)) == Action::WAIT));
  CHECK_FALSE(policy.wake().has_value());
  policy.ended({{1, kGood}}, Time(101));
  CHECK((policy.next(Time(1000)) == Action::WAIT));
  CHECK_FALSE(policy.wake().has_value());
  policy.ended({{0, kGood}}, Time(1001));
  CHECK(policy.all_ended());
  CHECK_FALSE(policy.culprit().has_value());
  CHECK(policy.exit_code() == 0);
}

TEST_CASE("What ended ranks have left behind is asked to end, then killed") {
  EndPolicy policy = policy_of(1);
  policy.ended({{0, kGood}}, Time(0));
  CHECK((policy.next(Time(0)) == Action::TERMINATE));
  CHECK((policy.next(Time(9.9)) == Action::WAIT));
  CHECK((policy.next(Time(10)) == Action::KILL));
  CHECK(policy.killed().empty());
  CHECK(policy.exit_code() == 0);
}

TEST_CASE("A rank that was asked to end by a signal and is killed because it did not is no failure") {
  EndPolicy policy = policy_of(2);
  policy.asked_to_end(SIGTERM);
  policy.ended({{1, kTerminated}}, Time(0));
  CHECK((policy.next(Time(10)) == Action::KILL));
  policy.ended({{0, kKilled}}, Time(11));
  CHECK_FALSE(policy.culprit().has_value());
  CHECK(policy.exit_code() == 128 + SIGTERM);
}

TEST_CASE("A failure ends all at once, and kills after the grace time; each only once") {
  EndPolicy policy = policy_of(3);
  policy.ended({{1, kFailed}}, Time(5));
  CHECK((policy.next(Time(5)) == Action::TERMINATE));
  CHECK(policy.wake() == Time(15));
  CHECK((policy.next(Time(6)) == Action::WAIT));
  policy.ended({{0, kTerminated}}, Time(7));
  CHECK((policy.next(Time(14.9)) == Action::WAIT));
  CHECK((policy.next(Time(15)) == Action::KILL));
  CHECK(policy.killed() == std::vector{2});
  CHECK((policy.next(Time(16)) == Action::WAIT));
  CHECK_FALSE(policy.wake().has_value());
  policy.ended({{2, kKilled}}, Time(17));
  CHECK(policy.culprit() == 1);
  CHECK(policy.exit_code() == 3);
}

TEST_CASE("Of ranks that end at the same time, a killed one is to blame before one with an exit code, and 75 is last") {
  EndPolicy policy = policy_of(4);
  policy.ended({{0, kLostPeer}, {1, kFailed}, {2, kKilled}, {3, kGood}}, Time(0));
  CHECK(policy.culprit() == 2);
  CHECK(policy.exit_code() == 137);
  EndPolicy codes = policy_of(3);
  codes.ended({{0, kLostPeer}, {1, kFailed}}, Time(0));
  CHECK(codes.culprit() == 1);
}

TEST_CASE("A rank that ends with 75 ends nobody until another one fails or the time for that is over") {
  EndPolicy policy = policy_of(3);
  policy.ended({{0, kLostPeer}}, Time(1));
  CHECK((policy.next(Time(1)) == Action::WAIT));
  CHECK(policy.wake() == Time(3));
  policy.ended({{1, kLostPeer}}, Time(2));
  CHECK((policy.next(Time(2)) == Action::WAIT));
  SUBCASE("another one fails") {
    policy.ended({{2, kFailed}}, Time(2.5));
    CHECK((policy.next(Time(2.5)) == Action::TERMINATE));
    CHECK(policy.culprit() == 2);
    CHECK(policy.exit_code() == 3);
  }
  SUBCASE("it also ends with 75") {
    policy.ended({{2, kLostPeer}}, Time(2.5));
    CHECK((policy.next(Time(2.5)) == Action::TERMINATE));
    CHECK(policy.culprit() == 0);
    CHECK(policy.exit_code() == 75);
  }
  SUBCASE("it ends only when it is told to, which is no failure of its own") {
    CHECK((policy.next(Time(3)) == Action::TERMINATE));
    policy.ended({{2, kTerminated}}, Time(4));
    CHECK(policy.culprit() == 0);
    CHECK(policy.exit_code() == 75);
  }
  SUBCASE("it hangs, so it is the one that the others lost") {
    CHECK((policy.next(Time(3)) == Action::TERMINATE));
    CHECK((policy.next(Time(13)) == Action::KILL));
    policy.ended({{2, kKilled}}, Time(13));
    CHECK(policy.culprit() == 2);
    CHECK(policy.exit_code() == 137);
  }
}

TEST_CASE("After a signal that asks for the end, an end by it is no failure, and others get the grace time") {
  EndPolicy policy = policy_of(3);
  policy.asked_to_end(SIGTERM);
  CHECK((policy.next(Time(1000)) == Action::WAIT));
  CHECK_FALSE(policy.wake().has_value());
  policy.ended({{0, kTerminated}}, Time(1000));
  CHECK((policy.next(Time(1000)) == Action::WAIT));
  CHECK(policy.wake() == Time(1010));
  SUBCASE("the others end") {
    policy.ended({{1, Ending{.code = 128 + SIGTERM}}, {2, kLostPeer}}, Time(1001));
    CHECK((policy.next(Time(1001)) == Action::WAIT));  // what they have started may be writing
    CHECK_FALSE(policy.culprit().has_value());
    CHECK(policy.exit_code() == 128 + SIGTERM);
  }
  SUBCASE("another one does not") {
    CHECK((policy.next(Time(1010)) == Action::KILL));
    CHECK(policy.killed() == std::vector{1, 2});
  }
  SUBCASE("another one fails") {
    policy.ended({{1, kFailed}}, Time(1001));
    CHECK((policy.next(Time(1001)) == Action::TERMINATE));
    policy.ended({{2, kTerminated}}, Time(1002));
    CHECK(policy.exit_code() == 3);
  }
}

TEST_CASE("After two different signals that ask for the end, an end by either is no failure") {
  EndPolicy policy = policy_of(2);
  policy.asked_to_end(SIGINT);
  policy.asked_to_end(SIGTERM);
  policy.ended({{0, kTerminated}}, Time(0));
  policy.ended({{1, Ending{.signal = SIGINT}}}, Time(1));
  CHECK_FALSE(policy.culprit().has_value());
  CHECK(policy.exit_code() == 128 + SIGINT);
}

TEST_CASE("All ranks that end with 0 after a signal are 0") {
  EndPolicy policy = policy_of(2);
  policy.asked_to_end(SIGINT);
  policy.ended({{0, kGood}, {1, kGood}}, Time(0));
  CHECK(policy.exit_code() == 0);
}

}  // namespace
}  // namespace composer::test::launch_policy_test
