#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::dist {

class World;

// Replaces each gradient by its mean over ranks, after the backward passes. A missing gradient counts as zeros, unless
// it is missing on all ranks: then it stays undefined. A collective: all ranks pass the same parameters in the same
// order. Gradients travel in pieces of about `bucket_cap_mb` MiB. Throws ConfigError for a sparse gradient.
COMPOSER_EXPORT void average_gradients(World& world, const std::vector<at::Tensor>& parameters,
                                       std::int64_t bucket_cap_mb = 25);

}  // namespace composer::dist
