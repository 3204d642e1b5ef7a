// What ranks and their launcher agree on, in simulated jobs.
#include "tests/dist/jobs.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "composer/trainer/votes.h"
#include "tests/support/doctest.h"

namespace composer::dist::jobs_test {
namespace {

// COMPOSER_SCHEDULES sets how many.
TEST_CASE("in random schedules of jobs all ranks stop after the same batch, and restarts lose nothing that was saved") {
  const char* wanted = std::getenv("COMPOSER_SCHEDULES");
  const int count = wanted ? std::atoi(wanted) : 1000;
  const DetectorRules rules;
  for (int seed = 0; seed < count; ++seed) {
    const simulation::Job job = simulation::draw_job(static_cast<std::uint64_t>(seed), rules);
    const std::string broken = simulation::broken_promise(job, rules);
    if (broken.empty()) continue;
    const std::string schedule = job.text();
    CAPTURE(schedule);
    FAIL(broken);
  }
}

// What ranks decide whose wishes are these, by rank.
Decision decision_of(const std::vector<Wish>& wishes) {
  const int size = static_cast<int>(wishes.size());
  Vote largest{};
  for (int rank = 0; rank < size; ++rank) {
    const Vote vote = vote_of(wishes[static_cast<std::size_t>(rank)], rank, size);
    for (std::size_t i = 0; i < vote.size(); ++i) largest[i] = std::max(largest[i], vote[i]);
  }
  return decide(largest, size);
}

TEST_CASE("of several ranks that ask to stop the first counts, one that is finished before one that pauses") {
  const Wish none, pause{.stop = true}, finish{.stop = true, .kind = Stop::FINISHED};
  CHECK(decision_of({none, none}).asker == -1);
  CHECK(decision_of({none, pause, pause}).asker == 1);
  CHECK(decision_of({none, pause, pause}).kind == Stop::PAUSED);
  CHECK(decision_of({pause, none, finish}).asker == 2);
  CHECK(decision_of({pause, none, finish}).kind == Stop::FINISHED);
  CHECK(decision_of({finish, finish}).asker == 0);
}

TEST_CASE("a signal of any rank is a signal of all, SIGTERM before SIGINT") {
  CHECK(decision_of({{}, {.signal = SIGINT}}).signal == SIGINT);
  CHECK(decision_of({{.signal = SIGTERM}, {.signal = SIGINT}}).signal == SIGTERM);
  CHECK(decision_of({{.signal = SIGTERM}, {}}).asker == -1);
  CHECK(signal_of({0, 0}) == 0);
  CHECK(signal_of({2, 0}) == SIGINT);
  CHECK(signal_of({1, 1}) == SIGTERM);
}

}  // namespace
}  // namespace composer::dist::jobs_test
