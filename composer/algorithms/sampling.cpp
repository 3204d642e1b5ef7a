#include "composer/algorithms/sampling.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

namespace composer::algorithms {
namespace {

// uniform() is in [0, 1), so the argument is in (0, 1].
double sample_log_uniform(RandomStream& random) { return std::log(1 - random.uniform()); }

double sample_normal(RandomStream& random) {
  const double radius = std::sqrt(-2 * sample_log_uniform(random));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

// Samples the logarithm, because the number itself underflows for small shapes. at::_standard_gamma would give 0, and
// at::_sample_dirichlet, which divides two such numbers, would not give a beta distribution. The method is that of
// Marsaglia and Tsang (2000).
double sample_log_gamma(double shape, RandomStream& random) {
  if (shape < 1) {
    const double larger = sample_log_gamma(shape + 1, random);
    return larger + sample_log_uniform(random) / shape;
  }
  const double d = shape - 1. / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = sample_normal(random);
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && sample_log_uniform(random) < x * x / 2 + d * (1 - v + std::log(v))) return std::log(d * v);
  }
}

}  // namespace

double sample_beta(double a, double b, RandomStream& random) {
  const double log_a = sample_log_gamma(a, random), log_b = sample_log_gamma(b, random);
  return 1 / (1 + std::exp(log_b - log_a));
}

std::vector<double> sample_dirichlet(double alpha, std::int64_t n, RandomStream& random) {
  std::vector<double> shares;
  for (std::int64_t i = 0; i < n; ++i) shares.push_back(sample_log_gamma(alpha, random));
  const double largest = *std::ranges::max_element(shares);
  double sum = 0;
  for (double& share : shares) sum += share = std::exp(share - largest);
  for (double& share : shares) share /= sum;
  return shares;
}

at::Tensor sample_permutation(std::int64_t n, RandomStream& random) {
  at::Tensor permutation = at::arange(n, at::kLong);
  auto* const order = permutation.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = n; i-- > 1;) std::swap(order[i], order[random.below(static_cast<std::uint64_t>(i) + 1)]);
  return permutation;
}

}  // namespace composer::algorithms
