#pragma once
#include <algorithm>
#include <cstdint>
#include <random>

namespace composer::dist::simulation {

struct Draws {
  explicit Draws(std::uint64_t seed) : random(seed) {}
  std::int64_t within(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, std::max(low, high))(random);
  }
  bool chance(int percent) { return within(1, 100) <= percent; }
  std::mt19937_64 random;
};

}  // namespace composer::dist::simulation
