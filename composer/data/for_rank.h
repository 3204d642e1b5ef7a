#pragma once
#include <cstdint>

#include "composer/core/export.h"
#include "composer/data/data_spec.h"

namespace composer::data {

// Returns a DataSpec whose loader yields the rank's slice of each batch (see rank_slice.h). It has as many batches as
// the given loader, in the same order, so a run can be resumed with another number of ranks. The loaders of in_memory
// and map_style read only the samples of the slice; other loaders read whole batches, and the slice is taken before
// batch_transforms. batch_transforms gets the slice. With one rank, the spec is returned unchanged.
// Random choices of in_memory and map_style depend on (seed, epoch, sample), not on the rank: give all ranks one seed.
// Throws ConfigError without a loader, unless 0 <= rank < world_size, and for a loader that is sliced already.
// `shards`: as in rank_slice().
COMPOSER_EXPORT DataSpec for_rank(DataSpec spec, std::int64_t rank, std::int64_t world_size, std::int64_t shards = 0);

}  // namespace composer::data
