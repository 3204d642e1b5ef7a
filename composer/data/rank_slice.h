#pragma once
#include <cstdint>

#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/data_spec.h"

namespace composer::data {

// A contiguous range of the samples of a batch: [begin, end).
struct RankSlice {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const RankSlice&) const = default;
};

// Returns the samples of a batch that rank `rank` of `world_size` processes trains on. The slices of all ranks cover
// the batch once, in the order of the ranks; their sizes differ by at most one, and larger ones come first. A slice is
// empty if the batch has fewer samples than there are ranks. With `shards`, a multiple of world_size, the batch is
// divided into that many slices by the same rule, and each rank gets an equal number of consecutive slices, so the
// contents of a shard do not depend on the number of ranks. Throws ConfigError unless 0 <= rank < world_size and
// `shards` is a multiple of world_size, DataError for a negative number of samples.
COMPOSER_EXPORT RankSlice rank_slice(std::int64_t samples, std::int64_t rank, std::int64_t world_size,
                                     std::int64_t shards = 0);

// Returns the rank's slice of a batch as views, in the batch's order. Uses split_batch and get_num_samples_in_batch of
// the spec if they are set. An empty slice has all tensors, with 0 rows; 0-dimensional tensors are in every slice.
// Throws DataError if split_batch of the spec does not return consecutive parts of the requested size.
// Throws ConfigError for shards with a split_batch of the spec.
COMPOSER_EXPORT Batch slice_batch(const Batch& batch, const DataSpec& spec, std::int64_t rank, std::int64_t world_size,
                                  std::int64_t shards = 0);

}  // namespace composer::data
