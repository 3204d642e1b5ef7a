#pragma once
// Attention in float on the CPU: softmax(scale * q k^T) v for each head, and its gradients.
#include <cstdint>

#include "composer/core/export.h"

namespace composer::kernels {

// [batch, heads, rows, depth] in memory; strides in elements. Rows are contiguous.
struct HeadRows {
  float* data;
  std::int64_t batch, head, row;
};
struct ConstHeadRows {
  const float* data;
  std::int64_t batch, head, row;
};

struct Attention {
  std::int64_t batch, heads, queries, keys, depth;  // at least 1; depth at most kDepth
  bool causal;                                      // query i sees the keys 0 to i
  float scale;
  ConstHeadRows q, k, v;
};

constexpr std::int64_t kDepth = 256;  // one part of a sum (gemm.h), which pack() must not divide

// Uses libtorch's threads, each for whole heads. The result has the same bits for any number of threads and on any
// processor. Throws what gemm() throws. output: [batch, heads, queries, depth]. logsumexp: of the scaled scores of each
// query, a row of depth 1.
COMPOSER_EXPORT void attention_forward(const Attention& attention, const HeadRows& output, const HeadRows& logsumexp);

struct AttentionGradients {
  HeadRows q, k, v;
};
// `output` and `logsumexp` are the results of the forward pass.
COMPOSER_EXPORT void attention_backward(const Attention& attention, const ConstHeadRows& output,
                                        const ConstHeadRows& logsumexp, const ConstHeadRows& d_output,
                                        const AttentionGradients& gradients);

}  // namespace composer::kernels
