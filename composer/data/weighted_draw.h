#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/util/random.h"

namespace composer::data::detail {

// Draws indices with replacement, each with a probability in proportion to its weight. A draw takes constant time, by a
// table of the size of the weights (the alias method of Walker, made in linear time as by Vose).
class WeightedDraw {
 public:
  // The weights must be finite, >= 0 and not all 0.
  explicit WeightedDraw(const std::vector<double>& weights);

  std::int64_t size() const { return static_cast<std::int64_t>(cells_.size()); }
  std::vector<std::int64_t> draw(std::int64_t count, RandomStream random) const;

 private:
  // A cell is drawn with the probability 1 / size, and stands for itself below `limit` of 2^64, else for `other`.
  struct Cell {
    std::uint64_t limit = 0;
    std::int64_t other = 0;
  };
  std::vector<Cell> cells_;
};

// The option `weights` of a loader: null if it is not given. Throws DataError, with the position, for a weight that is
// negative or not finite, and for weights that are all 0 or not [N].
std::shared_ptr<const WeightedDraw> weighted(const char* who, const at::Tensor& weights);

}  // namespace composer::data::detail
