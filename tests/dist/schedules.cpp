#include "tests/dist/schedules.h"

#include <algorithm>
#include <random>
#include <sstream>

#include "tests/dist/draws.h"

namespace composer::dist::simulation {
namespace {

constexpr Time FOREVER{1'000'000};
constexpr Time MARGIN{5000};  // beyond dead_after, for all to end

// The longest way of a heartbeat into the store and back: three requests, each with an answer.
Time turn(const Schedule& schedule) { return 6 * schedule.slowest; }

bool is_lethal(const Fault& fault, const DetectorRules& rules) {
  return fault.kind != Fault::STOP || fault.length > rules.dead_after;
}

bool concerns(const Fault& fault, int rank) { return fault.kind != Fault::LOSE_STORE && fault.rank == rank; }

bool takes_store_away(const Schedule& schedule, const Fault& fault) {
  return fault.kind == Fault::LOSE_STORE || (schedule.store_rank >= 0 && fault.rank == schedule.store_rank);
}

Fault lethal(Draws& draws, const Schedule& schedule) {
  const bool of_launcher = schedule.store_rank < 0 && draws.chance(20);
  const Fault::Kind kinds[] = {Fault::KILL, Fault::STOP, Fault::FAIL};
  Fault fault{of_launcher ? Fault::LOSE_STORE : kinds[draws.within(0, 2)]};
  fault.rank = static_cast<int>(draws.within(0, schedule.ranks - 1));
  fault.at = Time(draws.within(1, schedule.work.count() + 600));
  fault.length = FOREVER;
  return fault;
}

Fault stop(Draws& draws, const Schedule& schedule, Time shortest, Time longest) {
  Fault fault{Fault::STOP, static_cast<int>(draws.within(0, schedule.ranks - 1))};
  fault.at = Time(draws.within(1, schedule.work.count()));
  fault.length = Time(draws.within(shortest.count(), longest.count()));
  return fault;
}

std::string say(int rank, const End& end) {
  static const char* const names[] = {"never ended",      "finished",           "lost a peer",
                                      "did not know why", "was ended by force", "died"};
  std::ostringstream text;
  text << "\n  rank " << rank << ' ' << names[end.how] << " at " << end.at.count() << ' ' << end.text;
  return text.str();
}

}  // namespace

Trial draw(std::uint64_t seed, const DetectorRules& rules) {
  Draws draws(seed);
  Trial trial;
  Schedule& schedule = trial.schedule;
  schedule.seed = seed;
  schedule.ranks = static_cast<int>(draws.within(2, 5));
  schedule.store_rank = draws.chance(25) ? -1 : 0;
  trial.kind = static_cast<Trial::Kind>(draws.within(Trial::HARMLESS, Trial::CUT_OFF));
  const bool slow = draws.chance(30);
  schedule.slowest = Time(slow ? draws.within(50, 500) : draws.within(1, 50));
  schedule.work = Time(draws.within(2000, 25000));
  for (int rank = 0; rank < schedule.ranks; ++rank)
    schedule.is_busy.push_back(trial.kind != Trial::HARMLESS && trial.kind != Trial::BORDERLINE && draws.chance(15));
  const Time harmless = rules.dead_after - 2 * rules.heartbeat - turn(schedule);
  const Time harmful = rules.dead_after + 2 * rules.heartbeat + turn(schedule);
  switch (trial.kind) {
    case Trial::HARMLESS:
      if (harmless > Time(0) && draws.chance(60)) schedule.faults.push_back(stop(draws, schedule, Time(1), harmless));
      break;
    case Trial::ONE_LOST:
      schedule.faults.push_back(lethal(draws, schedule));
      break;
    case Trial::SUSPENDED:
      schedule.faults.push_back(stop(draws, schedule, harmful, 6 * rules.dead_after));
      break;
    case Trial::BORDERLINE:
      schedule.faults.push_back(stop(draws, schedule, harmless, harmful));
      break;
    case Trial::TWO_LOST:
      schedule.faults = {lethal(draws, schedule), lethal(draws, schedule)};
      if (schedule.faults[1].rank == schedule.faults[0].rank)
        schedule.faults[1].rank = (schedule.faults[0].rank + 1) % schedule.ranks;
      if (draws.chance(50)) schedule.faults[1].at = schedule.faults[0].at + Time(draws.within(0, 6000));
      break;
    case Trial::CUT_OFF:
      schedule.faults = {stop(draws, schedule, Time(1), Time(1))};
      schedule.faults[0].kind = Fault::CUT;
      break;
  }
  return trial;
}

std::string broken_promise(const Trial& trial, const DetectorRules& rules) {
  const Schedule& schedule = trial.schedule;
  // A lethal failure ends all, whether they have finished or not.
  const bool ends_all =
      trial.kind != Trial::BORDERLINE && !schedule.faults.empty() &&
      std::ranges::all_of(schedule.faults, [&](const Fault& fault) { return is_lethal(fault, rules); });
  Time last = ends_all ? Time(0) : schedule.work + Time(300);
  for (const Fault& fault : schedule.faults)
    last = std::max(last, fault.at + (fault.length < FOREVER ? fault.length : Time(0)));
  // A rank that stands still can only end when it goes on. Finding out takes two turns more if messages are slow.
  const Time by = last + rules.dead_after + MARGIN + 2 * turn(schedule);
  const std::vector<End> ends = simulate(schedule, rules, by);
  std::string all;
  for (int rank = 0; rank < schedule.ranks; ++rank) all += say(rank, ends[rank]);

  bool someone_finished = false, someone_lost = false, lethal = false, store_lost = false;
  for (const Fault& fault : schedule.faults) {
    lethal = lethal || is_lethal(fault, rules);
    store_lost = store_lost || takes_store_away(schedule, fault);
  }
  int first_named = -3;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const End& end = ends[rank];
    const auto its_own =
        std::ranges::find_if(schedule.faults, [&](const Fault& fault) { return concerns(fault, rank); });
    const bool is_faulty = its_own != schedule.faults.end();
    if (end.how == End::DIED) continue;
    if (end.how == End::NEVER) {
      if (is_faulty && its_own->kind == Fault::STOP && its_own->length == FOREVER) continue;
      return "a rank hangs" + all;
    }
    if (end.how == End::UNKNOWN) return "a rank ends without a verdict" + all;
    if (end.how == End::FINISHED) {
      someone_finished = true;
      continue;
    }
    someone_lost = true;
    if (is_faulty && its_own->kind == Fault::FAIL && end.named == -2) continue;  // it knows its own error
    if (trial.kind == Trial::HARMLESS) return "nobody was lost, but a rank was accused" + all;
    // Whoever is cut off from the store names the process that serves it, or those that it hears no more.
    if (trial.kind == Trial::CUT_OFF && is_faulty) {
      if (rank != schedule.store_rank && end.named != schedule.store_rank)
        return "the rank cut off names another" + all;
      continue;
    }
    const bool right = std::ranges::any_of(schedule.faults, [&](const Fault& fault) {
      return fault.kind == Fault::LOSE_STORE ? end.named == -1 : end.named == fault.rank;
    });
    if (!right) return "a rank names one that is not to blame" + all;
    const bool says_why = end.text.find("out of cheese") != end.text.npos;
    if (trial.kind == Trial::ONE_LOST && schedule.faults[0].kind == Fault::FAIL && schedule.slowest <= Time(50) &&
        !says_why)
      return "a rank failed, and another does not know why" + all;
    if (first_named == -3) first_named = end.named;
    if (first_named != end.named && !(store_lost && schedule.faults.size() > 1))
      return "the ranks name different ones" + all;
  }
  if (someone_finished && someone_lost && !store_lost) return "some finished, others lost a peer" + all;
  return {};
}

}  // namespace composer::dist::simulation
