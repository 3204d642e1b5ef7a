#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

namespace composer::test {

// Bytes that differ from these by damage of some kind: bits, bytes, cut, longer, moved, zeroed, or a part of `other`.
std::string damaged(const std::string& bytes, const std::string& other, std::mt19937_64& random);

struct Verdicts {
  std::size_t refused = 0;    // with a CheckpointError
  std::size_t unchanged = 0;  // read, and the tensors are what they were
  std::size_t silent = 0;     // read, and the tensors are others
  std::size_t other = 0;      // another error
  std::string first;          // of the silent and the other ones
};

enum class Format : std::uint8_t { SAFETENSORS, PT };

// Reads a file of ours that was damaged, so many times.
Verdicts attack(Format format, std::size_t times, std::uint64_t seed);

}  // namespace composer::test
