#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/util/random.h"

namespace composer::algorithms {

// Samples the beta distribution. a and b must be > 0, and may be very small.
double sample_beta(double a, double b, RandomStream& random);

// Samples the symmetric Dirichlet distribution: n shares whose sum is 1. alpha > 0, n >= 1.
std::vector<double> sample_dirichlet(double alpha, std::int64_t n, RandomStream& random);

// A uniformly random permutation of 0 to n - 1: int64 [n] on the CPU.
at::Tensor sample_permutation(std::int64_t n, RandomStream& random);

}  // namespace composer::algorithms
