#pragma once
#include <cstdint>

namespace composer::util {

// A share of a count, rounded down. `share` >= 0, and the result must fit into 64 bits. A product that is below a whole
// number by rounding errors alone gives that number: 0.29 * 100 is slightly less than 29 in doubles, and 29 here.
inline std::int64_t share_of(std::int64_t count, double share) {
  // More than the errors of the few operations that compute a share, as in 1 - 0.99.
  constexpr double kRounding = 1e-12;
  return static_cast<std::int64_t>(static_cast<double>(count) * share * (1 + kRounding));
}

}  // namespace composer::util
