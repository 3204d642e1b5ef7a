#include "composer/trainer/trials.h"

#include <algorithm>
#include <cstddef>

namespace composer {
namespace {

constexpr double kFasterShare = 0.97;  // of the time that it takes now

// The value that this share of all values is smaller than.
double quantile(std::vector<double>& values, double share) {
  const auto place = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size()));
  const auto at = values.begin() + std::min(place, static_cast<std::ptrdiff_t>(values.size()) - 1);
  std::ranges::nth_element(values, at);
  return *at;
}

}  // namespace

double seconds_since(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

Trials time_in_pairs(const TrialLimits& limits, const std::function<double()>& now,
                     const std::function<double()>& other) {
  Trials trials;
  for (auto* seconds : {&trials.now, &trials.other}) seconds->reserve(static_cast<std::size_t>(limits.most));
  for (int round = 0; round < limits.most; ++round) {
    const bool other_first = round % 2 == 1;
    if (other_first) trials.other.push_back(other());
    trials.now.push_back(now());
    if (!other_first) trials.other.push_back(other());
    if (round + 1 >= limits.least && seconds_since(limits.from) > limits.seconds) break;
  }
  return trials;
}

double median(std::vector<double> values) { return quantile(values, 0.5); }

bool other_is_faster(const Trials& trials) {
  std::vector<double> ratios;
  ratios.reserve(trials.now.size());
  for (std::size_t i = 0; i < trials.now.size(); ++i) ratios.push_back(trials.other[i] / trials.now[i]);
  return quantile(ratios, 0.5) < kFasterShare && quantile(ratios, 0.75) < 1;
}

}  // namespace composer
