#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "composer/util/random.h"

namespace composer::algorithms {

// Samples the beta distribution; a and b > 0, however small.
double sample_beta(double a, double b, RandomStream& random);

// A uniformly random permutation of 0 to n - 1: int64 [n] on the CPU.
at::Tensor sample_permutation(std::int64_t n, RandomStream& random);

}  // namespace composer::algorithms
