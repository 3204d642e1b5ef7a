#pragma once
#include <cstdint>
#include <memory>

#include "composer/core/export.h"
#include "composer/data/loader.h"

namespace composer::data {

// Returns a loader each batch of which is `count` batches of the given one, joined along dimension 0; the last batch of
// an epoch may have fewer. A step then trains on all of them, and `device_train_microbatch_size` divides the work. It
// is for loaders whose batches cannot be made larger themselves. Tensors without dimensions must be equal in all of
// them. Throws ConfigError without a loader and for a count below 1; next() throws DataError for tensors that do not
// fit together.
COMPOSER_EXPORT std::shared_ptr<Loader> join_batches(std::shared_ptr<Loader> loader, std::int64_t count);

}  // namespace composer::data
