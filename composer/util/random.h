#pragma once
#include <concepts>
#include <cstdint>

namespace composer {

// This is not libtorch's Philox4_32: the orders and augmentations of saved runs depend on these numbers, and one 64-bit
// hash costs less than setting up a Philox engine for each sample.

// A bijective hash of 64 bits (the finaliser of splitmix64): neighbouring numbers give unrelated ones.
constexpr std::uint64_t hash64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Combines a seed and what the number is for, in this order: hash64(seed, epoch, sample). The numbers of seed 17 in
// epoch 1 and of seed 18 in epoch 0 are unrelated.
template <std::integral... More>
constexpr std::uint64_t hash64(std::uint64_t seed, std::uint64_t key, More... more) {
  const std::uint64_t mixed = hash64(hash64(seed) ^ key);
  if constexpr (sizeof...(more) == 0) {
    return mixed;
  } else {
    return hash64(mixed, static_cast<std::uint64_t>(more)...);
  }
}

// Random numbers that depend on the start value alone, so a resumed run draws the same numbers at the same position.
class RandomStream {
 public:
  explicit constexpr RandomStream(std::uint64_t start) : state_(start) {}
  constexpr std::uint64_t next() { return hash64(state_++); }
  // Returns 0 to bound - 1, each equally likely up to bound / 2^64. bound >= 1.
  constexpr std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  std::uint64_t state_;
};

}  // namespace composer
