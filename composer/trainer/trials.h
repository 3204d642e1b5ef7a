// Decides between two ways of doing the same from times that vary. Internal.
#pragma once
#include <vector>

namespace composer {

// Seconds that two ways took: now[i] and other[i] were measured one right after the other, so that whatever else the
// machine did is in both.
struct Trials {
  std::vector<double> now, other;
};

// Whether the other way takes at least 3 % less time, by the median of the ratios of each pair, and is faster in three
// of four pairs: less is within what the same way differs from itself.
bool other_is_faster(const Trials& trials);

double median(std::vector<double> values);  // of at least one

}  // namespace composer
