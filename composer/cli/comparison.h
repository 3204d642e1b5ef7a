#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "composer/cli/contents.h"

namespace composer::cli {

// Globs of what two equal runs do not have in common: what clocks tell, names that are drawn, and the length and
// checksums of a file of which clocks fill a part.
const std::vector<std::string>& wall_clock_globs();
bool fits_any(const std::string& name, const std::vector<std::string>& globs);

struct Difference {
  std::string name, what;
};

struct Comparison {
  std::int64_t compared = 0, equal = 0;  // tensors and values
  std::vector<Difference> differences;
};

// Tensors are equal if all their bits are. If only one of the two is a checkpoint, its weights are compared. What fits
// one of the globs is passed over.
Comparison compare(const Contents& a, const Contents& b, const std::vector<std::string>& ignored);

// Empty if dtype, shape and all bits are equal; else how they differ.
std::string difference_of(const at::Tensor& a, const at::Tensor& b);

}  // namespace composer::cli
