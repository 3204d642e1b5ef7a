#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>

#include "tests/support/folder.h"

namespace composer::test {

// Two checkpoints of one run, alike but for their content.
class TwoCheckpoints {
 public:
  static constexpr const char* kNames[] = {"manifest.json", "model.safetensors", "state.safetensors"};
  TwoCheckpoints();

  std::string text(int number, const std::string& name) const;
  // Whether the first says what it said before when that file of it has these bytes. Throws what loading it throws.
  bool unchanged_with(const std::string& name, const std::string& bytes) const;

 private:
  std::filesystem::path path(int number) const { return folder_ / std::to_string(number); }
  std::string content() const;

  Folder folder_;
  std::string content_;
};

// Bytes that differ from these by damage of some kind: bits, bytes, cut, longer, moved, zeroed, or a part of `other`.
std::string damaged(const std::string& bytes, const std::string& other, std::mt19937_64& random);

struct Verdicts {
  std::size_t refused = 0;    // with a CheckpointError
  std::size_t unchanged = 0;  // read, and what it says is what it said
  std::size_t silent = 0;     // read, and it says something else
  std::size_t other = 0;      // another error
  std::string first;          // of the silent and the other ones
};

enum class Format : std::uint8_t { SAFETENSORS, PT, MANIFEST, CHECKPOINT };

// Reads a file of ours that was damaged, so many times; of a checkpoint one file after the other, and the whole of it.
Verdicts attack(Format format, std::size_t times, std::uint64_t seed);

}  // namespace composer::test
