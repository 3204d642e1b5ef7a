#pragma once
// Attention in float on the CPU: softmax(scale * q k^T) v for each head, and its gradients.
#include <cstdint>

#include "composer/core/export.h"

namespace composer::kernels {

// An array [batch, heads, rows, depth]; strides in elements. The elements of a row are adjacent.
struct HeadRows {
  float* data;
  std::int64_t batch, head, row;
};
struct ConstHeadRows {
  const float* data;
  std::int64_t batch, head, row;
};

struct Attention {
  std::int64_t batch, heads, queries, keys, depth;  // each at least 1; depth at most kDepth
  bool causal;                                      // query i sees only keys 0 to i
  float scale;
  ConstHeadRows q, k, v;
};

// The depth must fit into one part of a sum (gemm.h), because pack() must not divide it.
constexpr std::int64_t kDepth = 256;

// Computes the output [batch, heads, queries, depth], and logsumexp, the logarithm of the sum of exp over the scaled
// scores of each query, as rows of depth 1. Uses libtorch's threads, each for whole heads. The result has the same bits
// for any number of threads and on any processor. Throws like gemm().
COMPOSER_EXPORT void attention_forward(const Attention& attention, const HeadRows& output, const HeadRows& logsumexp);

struct AttentionGradients {
  HeadRows q, k, v;
};
// `output` and `logsumexp` are the results of the forward pass.
COMPOSER_EXPORT void attention_backward(const Attention& attention, const ConstHeadRows& output,
                                        const ConstHeadRows& logsumexp, const ConstHeadRows& d_output,
                                        const AttentionGradients& gradients);

}  // namespace composer::kernels
