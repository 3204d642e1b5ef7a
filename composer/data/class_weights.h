#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::data {

// The weight of each class, float32 [C], with which all classes that occur have the same weight in all: N / (classes
// that occur * samples of the class), and 0 for a class that does not occur. For the weights of a loss.
// `targets`: classes from 0, int64 [N] or other whole numbers. `classes`: C; 0: the largest target + 1.
// Throws DataError for other targets.
COMPOSER_EXPORT at::Tensor class_weights(const at::Tensor& targets, std::int64_t classes = 0);

// The weight of the class of each sample, float32 [N]: with .weights = balanced_weights(samples["target"]), a loader
// draws every class equally often.
COMPOSER_EXPORT at::Tensor balanced_weights(const at::Tensor& targets);

}  // namespace composer::data
