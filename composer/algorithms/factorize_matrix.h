#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::algorithms {

// A product a * b that approximates a matrix, or the weight of a convolution.
struct LowRankFactors {
  at::Tensor a;            // the matrix itself if b is undefined
  at::Tensor b;            // undefined if two factors would cost more than the matrix
  at::Tensor bias;         // undefined if none was given and nothing was factorized
  std::int64_t rank = -1;  // of the factors; -1: nothing was factorized
};

// Factors [m, rank] and [rank, n] whose product is as close to the matrix [m, n] as this rank allows. The factors have
// equal norms.
COMPOSER_EXPORT LowRankFactors low_rank(const at::Tensor& matrix, std::int64_t rank);

// Finds factors a, b and a bias so that x * a * b + bias is close to y, where x is [samples, in] and y [samples, out].
// It begins with low_rank() of the present weights, wa or wa * wb, and then solves for b and a in turn, n_iters times.
// `bias` is the bias contained in y, or undefined. A rank below 1 is a fraction of `in`. Weights whose rank is at most
// the requested one are returned unchanged.
COMPOSER_EXPORT LowRankFactors factorize_matrix(const at::Tensor& x, const at::Tensor& y, const at::Tensor& wa,
                                                const at::Tensor& wb = {}, const at::Tensor& bias = {},
                                                double rank = 0.25, std::int64_t n_iters = 3);

// Like factorize_matrix(), for the weight [out, in, h, w] of a convolution of stride 1 and input x [N, in, H, W] with
// zero padding: `a` is [rank, in, h, w] and `b` [out, rank, 1, 1].
COMPOSER_EXPORT LowRankFactors factorize_conv2d(const at::Tensor& x, const at::Tensor& weight,
                                                const at::Tensor& bias = {}, double rank = 0.25,
                                                std::int64_t n_iters = 3, std::int64_t padding = 0);

}  // namespace composer::algorithms
