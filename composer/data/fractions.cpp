#include "composer/data/fractions.h"

#include <algorithm>
#include <cmath>

#include "composer/core/error.h"

namespace composer::data::detail {

void check_fractions(const char* who, const std::vector<double>& fractions) {
  double sum = 0;
  for (const double fraction : fractions) {
    if (!(fraction > 0)) throw ConfigError(who, ": each fraction must be > 0, got ", fraction);
    sum += fraction;
  }
  if (!(std::abs(sum - 1) <= 1e-6)) throw ConfigError(who, ": the fractions must add up to 1, got ", sum, " in all");
}

std::vector<std::size_t> ends_of_parts(const std::vector<double>& fractions, std::size_t count) {
  std::vector<std::size_t> ends;
  double sum = 0;
  for (const double fraction : fractions) {
    sum += fraction;
    ends.push_back(std::min(count, static_cast<std::size_t>(sum * static_cast<double>(count) + 0.5 + kRounding)));
  }
  ends.back() = count;
  return ends;
}

}  // namespace composer::data::detail
