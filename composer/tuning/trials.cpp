#include "composer/tuning/trials.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <utility>

#include "composer/util/processors.h"

namespace composer {
namespace {

constexpr double kFasterShare = 0.97;  // of the current way's time
constexpr double kHopeless = 1.5;      // times the shortest time
constexpr double kGlance = 0.1;        // seconds; in less time, the system does not show what other programs do

double seconds_by(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  constexpr double kNano = 1e-9;
  return static_cast<double>(now.tv_sec) + kNano * static_cast<double>(now.tv_nsec);
}

// The value below which this share of all values lies.
double quantile(std::vector<double>& values, double share) {
  const auto place = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size()));
  const auto at = values.begin() + std::min(place, static_cast<std::ptrdiff_t>(values.size()) - 1);
  std::ranges::nth_element(values, at);
  return *at;
}

std::vector<double> shortest(const std::vector<const TrialRound*>& rounds, std::size_t ways) {
  std::vector<double> seconds(ways, std::numeric_limits<double>::infinity());
  for (const TrialRound* round : rounds)
    for (std::size_t way = 0; way < ways; ++way) seconds[way] = std::min(seconds[way], round->seconds[way]);
  return seconds;
}

// Compares the way with the first one in the rounds in which both were timed.
bool mostly_faster_than_first(std::size_t way, const std::vector<const TrialRound*>& rounds) {
  std::vector<double> ratios;
  for (const TrialRound* round : rounds)
    if (std::isfinite(round->seconds[way]) && std::isfinite(round->seconds[0]))
      ratios.push_back(round->seconds[way] / round->seconds[0]);
  return !ratios.empty() && quantile(ratios, 0.5) < kFasterShare && quantile(ratios, 0.75) < 1;
}

// Runs rounds one after another, and collects their results.
class Rounds {
 public:
  Rounds(const Contest& contest, const TrialLimits& limits, double& patience)
      : contest_(contest), limits_(limits), patience_(patience), left_out_(contest.changes.size()) {}

  std::vector<TrialRound> run() {
    const double start = seen_.wall;
    for (double passed = 0; !is_enough(passed); passed = seen_.wall - start) look_at_some();
    return std::move(rounds_);
  }

 private:
  bool is_enough(double passed) const {
    const auto all = static_cast<int>(rounds_.size());
    const auto are = [&](int rounds) {
      return rounds >= limits_.most || (rounds >= limits_.least && passed > limits_.seconds);
    };
    return are(quiet_) || (patience_ <= 0 && are(all));
  }

  // Runs rounds until it can be told whether they were disturbed.
  void look_at_some() {
    const std::size_t first = rounds_.size();
    util::ProcessorTimes now;
    do {
      rounds_.push_back(one());
      now = util::processor_times();
    } while (now.wall - seen_.wall < std::min(kGlance, limits_.seconds) &&
             static_cast<int>(rounds_.size() - first) < limits_.most);
    const double spent = now.wall - seen_.wall;
    const bool disturbed = util::disturbed(std::exchange(seen_, now), now);
    for (std::size_t i = first; i < rounds_.size(); ++i) rounds_[i].disturbed = disturbed;
    if (disturbed) {
      patience_ -= spent;
    } else {
      quiet_ += static_cast<int>(rounds_.size() - first);
      leave_out_hopeless();
    }
  }

  TrialRound one() const {
    const std::size_t ways = left_out_.size();
    TrialRound round{.seconds = std::vector<double>(ways, std::numeric_limits<double>::infinity())};
    for (std::size_t i = 0; i < ways; ++i) {
      const std::size_t way = rounds_.size() % 2 == 0 ? i : ways - 1 - i;
      if (!left_out_[way]) round.seconds[way] = contest_.time(way);
    }
    return round;
  }

  void leave_out_hopeless() {
    std::vector<const TrialRound*> quiet;
    for (const TrialRound& round : rounds_)
      if (!round.disturbed) quiet.push_back(&round);
    const std::vector<double> seconds = shortest(quiet, left_out_.size());
    const double best = std::ranges::min(seconds);
    for (std::size_t way = 0; way < seconds.size(); ++way) left_out_[way] = seconds[way] > kHopeless * best;
  }

  const Contest& contest_;
  const TrialLimits& limits_;
  double& patience_;
  std::vector<bool> left_out_;
  std::vector<TrialRound> rounds_;
  util::ProcessorTimes seen_ = util::processor_times();
  int quiet_ = 0;
};

}  // namespace

WorkClock::WorkClock() : wall_(seconds_by(CLOCK_MONOTONIC)), processor_(seconds_by(CLOCK_PROCESS_CPUTIME_ID)) {}

double WorkClock::seconds(bool one_thread) const {
  const double passed = seconds_by(CLOCK_MONOTONIC) - wall_;
  return one_thread ? std::min(passed, seconds_by(CLOCK_PROCESS_CPUTIME_ID) - processor_) : passed;
}

Verdict judge(const std::vector<TrialRound>& rounds, const std::vector<int>& changes, int least) {
  std::vector<const TrialRound*> quiet, all;
  for (const TrialRound& round : rounds) {
    all.push_back(&round);
    if (!round.disturbed) quiet.push_back(&round);
  }
  Verdict verdict{.disturbed = static_cast<int>(quiet.size()) < least};
  const std::vector<const TrialRound*>& counted = verdict.disturbed ? all : quiet;
  verdict.seconds = shortest(counted, changes.size());
  std::vector<std::size_t> able{0};
  for (std::size_t way = 1; way < changes.size(); ++way)
    if (verdict.seconds[way] < kFasterShare * verdict.seconds[0] && mostly_faster_than_first(way, counted))
      able.push_back(way);
  const auto of_way = [&](std::size_t way) { return verdict.seconds[way]; };
  const double best = of_way(std::ranges::min(able, {}, of_way));
  std::erase_if(able, [&](std::size_t way) { return kFasterShare * of_way(way) > best; });
  verdict.way = std::ranges::min(able, {}, [&](std::size_t way) { return std::pair(changes[way], of_way(way)); });
  return verdict;
}

Verdict fastest_of(const Contest& contest, const TrialLimits& limits, double& patience) {
  return judge(Rounds(contest, limits, patience).run(), contest.changes, limits.least);
}

}  // namespace composer
