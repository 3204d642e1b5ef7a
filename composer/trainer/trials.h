// Decides between two ways of doing the same from times that vary. Internal.
#pragma once
#include <chrono>
#include <functional>
#include <vector>

namespace composer {

// Seconds that two ways took: now[i] and other[i] were measured one right after the other, so that whatever else the
// machine did is in both.
struct Trials {
  std::vector<double> now, other;
};

// The least number of rounds, then more until so many seconds have passed since `from`, but at most `most`.
struct TrialLimits {
  int least, most;
  double seconds;
  std::chrono::steady_clock::time_point from;
};

// Times both ways in pairs that change their order, so that neither a machine that gets slower nor what the one way
// leaves in the caches is taken for a difference. `now` and `other` return the seconds that they took.
Trials time_in_pairs(const TrialLimits& limits, const std::function<double()>& now,
                     const std::function<double()>& other);

double seconds_since(std::chrono::steady_clock::time_point from);

// Whether the other way takes at least 3 % less time, by the median of the ratios of each pair, and is faster in more
// than three quarters of the pairs: less is within what the same way differs from itself.
bool other_is_faster(const Trials& trials);

double median(std::vector<double> values);  // of at least one

}  // namespace composer
