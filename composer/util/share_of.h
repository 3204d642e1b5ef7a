#pragma once
#include <cstdint>

namespace composer::util {

// A share of a count, rounded down; `share` >= 0, and the result fits into 64 bits. A product that falls short of a
// whole number by rounding alone is that number: 0.29 * 100 is less than 29 to a processor, and 29 here.
inline std::int64_t share_of(std::int64_t count, double share) {
  constexpr double kRounding = 1e-12;  // more than the errors of a few operations that make a share, as in 1 - 0.99
  return static_cast<std::int64_t>(static_cast<double>(count) * share * (1 + kRounding));
}

}  // namespace composer::util
