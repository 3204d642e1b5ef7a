#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "composer/cli/contents.h"

namespace composer::cli {

// Globs of values that differ between equal runs: measured times, random names, and the length and checksums of files
// with times.
const std::vector<std::string>& wall_clock_globs();
bool fits_any(const std::string& name, const std::vector<std::string>& globs);

struct Difference {
  std::string name, what;
};

struct Comparison {
  std::int64_t compared = 0, equal = 0;  // tensors and values
  std::vector<Difference> differences;
};

// Tensors are equal if they are bit-identical. If only one of the two is a checkpoint, its weights are compared. Names
// that match one of the globs are skipped.
Comparison compare(const Contents& a, const Contents& b, const std::vector<std::string>& ignored);

// Describes the difference; empty if dtype, shape and all bits are equal.
std::string difference_of(const at::Tensor& a, const at::Tensor& b);

}  // namespace composer::cli
