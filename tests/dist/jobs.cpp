#include "tests/dist/jobs.h"

#include <algorithm>
#include <csignal>
#include <random>
#include <sstream>

#include "composer/core/error.h"
#include "tests/dist/draws.h"

namespace composer::dist::simulation {
namespace {

constexpr Time kForever{10'000'000}, kLimit{1'000'000};

// A stop that is shorter than this never ends a run; one that is longer may.
Time harmless(const Schedule& schedule, const DetectorRules& rules) {
  return std::max(Time(1), rules.dead_after - 2 * rules.heartbeat - 6 * schedule.slowest);
}

bool is_harmless(const Fault& fault, const Schedule& schedule, const DetectorRules& rules) {
  return fault.kind == Fault::STOP && fault.length <= harmless(schedule, rules);
}

Fault draw_fault(Draws& draws, const Schedule& schedule, const DetectorRules& rules, Time length) {
  constexpr Fault::Kind kKinds[] = {Fault::KILL, Fault::FAIL, Fault::CUT, Fault::STOP, Fault::STOP, Fault::STOP};
  const std::int64_t kind = draws.within(0, 5);
  Fault fault{.kind = kKinds[kind], .rank = static_cast<int>(draws.within(0, schedule.ranks - 1))};
  fault.at = Time(draws.within(1, length.count()));
  const Time shortest = harmless(schedule, rules);
  fault.length = kind == 3   ? kForever
                 : kind == 4 ? Time(draws.within(1, shortest.count()))
                             : Time(draws.within(shortest.count(), 6 * rules.dead_after.count()));
  return fault;
}

Request draw_request(Draws& draws, const Schedule& schedule, Time length) {
  constexpr Request::Kind kKinds[] = {Request::PAUSE, Request::FINISH, Request::SIGNAL};
  Request request{.kind = kKinds[draws.within(0, 2)], .rank = static_cast<int>(draws.within(0, schedule.ranks - 1))};
  request.at = Time(draws.within(1, length.count()));
  request.signal = draws.chance(50) ? SIGINT : SIGTERM;
  return request;
}

Schedule draw_schedule(Draws& draws, int ranks, std::uint64_t seed) {
  Schedule schedule;
  schedule.seed = seed;
  schedule.ranks = ranks;
  schedule.slowest = Time(draws.chance(20) ? draws.within(20, 200) : draws.within(1, 20));
  schedule.is_busy.assign(static_cast<std::size_t>(ranks), false);
  return schedule;
}

// All have finished their work, and one was stopped for ever before its process ended.
bool waits_for_a_stopped_rank(const Attempt& attempt, const Training::Result& result) {
  for (int rank = 0; rank < attempt.schedule.ranks; ++rank) {
    const End::How how = result.ends[static_cast<std::size_t>(rank)].how;
    const bool stopped = std::ranges::any_of(attempt.schedule.faults, [&](const Fault& fault) {
      return fault.kind == Fault::STOP && fault.length == kForever && fault.rank == rank;
    });
    if (how != End::FINISHED && !(how == End::NEVER && stopped)) return false;
  }
  return true;
}

// Of one start; empty if all is well.
std::string broken_promise(const Attempt& attempt, const Training::Result& result, const DetectorRules& rules,
                           std::int64_t from, const TrainingRules& training) {
  const Schedule& schedule = attempt.schedule;
  if (!result.disagreement.empty()) return "the ranks disagree: " + result.disagreement;
  if (!result.over && !waits_for_a_stopped_rank(attempt, result)) return "the job hangs";
  const auto count = [&](End::How how) { return std::ranges::count(result.ends, how, &End::how); };
  if (count(End::UNKNOWN) > 0) return "a rank ends without knowing why";
  Time last{0};
  bool lethal = false, harmed = false;
  for (const Fault& fault : schedule.faults) {
    if (is_harmless(fault, schedule, rules)) continue;
    harmed = true;
    lethal = lethal || fault.kind != Fault::STOP;
    last = std::max(last, fault.at);
  }
  const bool finished = !result.over || count(End::FINISHED) == schedule.ranks;
  const bool store_lost = std::ranges::any_of(schedule.faults, [](const Fault& fault) { return fault.rank == 0; });
  bool lost_one = false;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const End::How how = result.ends[static_cast<std::size_t>(rank)].how;
    const bool is_absent = std::ranges::any_of(schedule.faults, [&](const Fault& fault) {
      const bool lasts = fault.kind == Fault::CUT || fault.kind == Fault::STOP;
      return lasts && fault.rank == rank;  // it cannot know that the others have finished meanwhile
    });
    lost_one = lost_one || (!is_absent && (how == End::PEER_LOST || how == End::FORCED));
  }
  if (!store_lost && count(End::FINISHED) > 0 && lost_one) return "some finished, others lost a peer";
  if (!harmed && !finished) return "nobody was lost, but not all ranks finished";
  if (result.saved < from || result.saved > training.batches) return join("batch ", result.saved, " is saved");
  if (finished) return {};
  // The launcher waits for the grace time only if a rank does not react.
  const Time by = last + 2 * rules.dead_after + Time(15000) + 100 * training.computing + 12 * schedule.slowest;
  if (lethal && schedule.faults.size() == 1 && result.at > by) return "the ranks end late";
  const bool named =
      result.code == 75 || result.interrupted ||
      std::ranges::any_of(schedule.faults, [&](const Fault& fault) { return fault.rank == result.culprit; }) ||
      std::ranges::any_of(attempt.requests, [](const Request& r) { return r.kind == Request::SIGNAL; });
  return named ? "" : join("the launcher blames rank ", result.culprit.value_or(-1));
}

}  // namespace

Job draw_job(std::uint64_t seed, const DetectorRules& rules) {
  Draws draws(seed);
  Job job;
  job.seed = seed;
  job.max_restarts = static_cast<int>(draws.within(0, 3));
  job.training.batches = draws.within(2, 12);
  job.training.eval_every = draws.within(0, 3);
  job.training.save_every = draws.within(1, 4);
  job.training.computing = Time(draws.within(5, 300));
  job.training.slow = draws.chance(30) ? 10 : 0;
  const int ranks = static_cast<int>(draws.within(2, 5));
  const Time length = Time(2000) + 2 * job.training.batches * job.training.computing;
  for (std::int64_t left = draws.within(0, job.max_restarts + 1); left > 0; --left) {
    Attempt attempt{.schedule = draw_schedule(draws, ranks, draws.random()), .requests = {}, .asked_to_end = {}};
    for (std::int64_t faults = draws.within(0, 2); faults > 0; --faults) {
      const Fault fault = draw_fault(draws, attempt.schedule, rules, length);
      const bool is_new =
          std::ranges::none_of(attempt.schedule.faults, [&](const Fault& f) { return f.rank == fault.rank; });
      if (!is_new) continue;
      attempt.schedule.faults.push_back(fault);
      // If all ranks stood still for ever, nobody would be left to notice.
      if (attempt.schedule.faults.size() > 1)
        attempt.schedule.faults.back().length = std::min(fault.length, 6 * rules.dead_after);
    }
    for (std::int64_t requests = draws.chance(50) ? draws.within(1, 3) : 0; requests > 0; --requests)
      attempt.requests.push_back(draw_request(draws, attempt.schedule, length));
    if (draws.chance(10)) attempt.asked_to_end = Time(draws.within(1, length.count()));
    job.attempts.push_back(std::move(attempt));
  }
  job.attempts.push_back({.schedule = draw_schedule(draws, ranks, draws.random()), .requests = {}, .asked_to_end = {}});
  return job;
}

std::string broken_promise(const Job& job, const DetectorRules& rules) {
  std::int64_t saved = 0;
  for (std::size_t start = 0;; ++start) {
    const Attempt& attempt = job.attempts[std::min(start, job.attempts.size() - 1)];
    const Training::Result result = Training(attempt, job.training, rules, saved).result(kLimit);
    const std::string broken = broken_promise(attempt, result, rules, saved, job.training);
    if (!broken.empty()) {
      std::ostringstream text;
      text << "start " << start << ": " << broken << "\n  code " << result.code << ", saved " << result.saved
           << ", over at " << result.at.count();
      for (const End& end : result.ends) text << "\n  " << end.how << " at " << end.at.count() << ' ' << end.text;
      return text.str();
    }
    if (!result.over) return {};
    saved = result.saved;
    const bool restarts = result.code != 0 && !result.interrupted && start < static_cast<std::size_t>(job.max_restarts);
    if (restarts) continue;
    const bool last_is_calm = start + 1 >= job.attempts.size();
    if (last_is_calm && (result.code != 0 || saved != job.training.batches))
      return join("the last start went well, but ends with ", result.code, " after batch ", saved);
    return {};
  }
}

std::string Job::text() const {
  std::ostringstream text;
  text << "seed " << seed << ", " << max_restarts << " restarts, " << training.batches << " batches of "
       << training.computing.count() << " ms, " << training.slow << " % slow, evaluations every " << training.eval_every
       << ", checkpoints every " << training.save_every;
  for (const Attempt& attempt : attempts) {
    text << "\n  " << attempt.schedule.text();
    for (const Request& request : attempt.requests)
      text << ", request " << request.kind << " of rank " << request.rank << " at " << request.at.count();
    if (attempt.asked_to_end) text << ", SIGTERM at " << attempt.asked_to_end->count();
  }
  return text.str();
}

}  // namespace composer::dist::simulation
