#pragma once
#include <cstdint>

#include "composer/core/export.h"

namespace composer::kernels {

// A matrix of floats in memory: element (i, j) is data[i * row + j * column].
struct Operand {
  const float* data;
  std::int64_t row, column;  // strides in elements, >= 0
};

// c = beta * plus + alpha * (a b), and then 0 for what is negative, if `relu`. a is m x k, b is k x n, c is m x n, all
// sizes at least 1. The columns of c are adjacent, its rows do not overlap each other, a or b.
struct Gemm {
  std::int64_t m, n, k;
  Operand a, b;
  float* c;
  std::int64_t c_row;
  const float* plus = nullptr;  // its columns are adjacent; may be c; nullptr: none
  std::int64_t plus_row = 0;    // 0: the same row for all, as a bias
  float alpha = 1, beta = 1;
  bool relu = false;
  const float* packed = nullptr;  // from pack(), in the place of b
};

// Many products of the same kind; strides in elements from one to the next.
struct GemmBatch {
  std::int64_t size = 1, a = 0, b = 0, c = 0, plus = 0;
};

// Whether this processor has the instructions: AVX-512, or AVX2 and FMA.
COMPOSER_EXPORT bool has_gemm();
// "AVX-512", "AVX2" or "none".
COMPOSER_EXPORT const char* gemm_instructions();

// Computes them with libtorch's threads. Each element is the sum of the parts of k that are 256 long, each one chain of
// fused multiply-adds in order; each part times alpha is added by one more of them (to beta * plus first, which is
// rounded). The result does not depend on threads, processors, or on the other rows and columns. Reads and writes
// nothing beyond the matrices. Throws std::bad_alloc, after which c may be written in part, and ConfigError where
// has_gemm() is false.
COMPOSER_EXPORT void gemm(const Gemm& product, const GemmBatch& batch = {});

// How many floats pack() writes, and b of a product with these n and k, in the order in which gemm() reads it. For many
// products with the same b, each on one thread.
COMPOSER_EXPORT std::int64_t packed_floats(std::int64_t n, std::int64_t k);
COMPOSER_EXPORT void pack(const Operand& b, std::int64_t n, std::int64_t k, float* to);

// For tests: the instructions of another processor, which this one must have: "AVX2", "none"; nullptr: the best ones.
COMPOSER_EXPORT void use_gemm_instructions(const char* name);

}  // namespace composer::kernels
