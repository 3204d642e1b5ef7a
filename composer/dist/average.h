#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::dist {

class World;

// Replaces each gradient by its mean over ranks, after the backward passes. A rank where a parameter has no gradient
// counts as zeros; a parameter without one on all ranks keeps none. All ranks call it with the same parameters in the
// same order. Gradients travel in pieces of about `bucket_cap_mb` MiB. Sparse gradients are an error (ConfigError).
COMPOSER_EXPORT void average_gradients(World& world, const std::vector<at::Tensor>& parameters,
                                       std::int64_t bucket_cap_mb = 25);

}  // namespace composer::dist
