#pragma once
#include <cstdint>

#include "composer/core/export.h"

namespace composer::kernels {

// A matrix of floats in memory: element (i, j) is data[i * row + j * column].
struct Operand {
  const float* data;
  std::int64_t row, column;  // strides in elements, >= 0
};

// c = beta * plus + alpha * (a b); if `relu`, negative elements then become 0. a is m x k, b is k x n, c is m x n; all
// sizes are at least 1. The columns of c are adjacent, and its rows overlap neither each other nor a or b.
struct Gemm {
  std::int64_t m, n, k;
  Operand a, b;
  float* c;
  std::int64_t c_row;
  const float* plus = nullptr;  // may be c; its columns are adjacent; nullptr: none
  std::int64_t plus_row = 0;    // 0: the same row for every row of c, as for a bias
  float alpha = 1, beta = 1;
  bool relu = false;
  const float* packed = nullptr;  // result of pack(), used instead of b
};

// A batch of products of the same sizes; strides in elements from one product to the next.
struct GemmBatch {
  std::int64_t size = 1, a = 0, b = 0, c = 0, plus = 0;
};

// Whether this processor supports the kernels: AVX-512, or AVX2 and FMA.
COMPOSER_EXPORT bool has_gemm();
// "AVX-512", "AVX2" or "none".
COMPOSER_EXPORT const char* gemm_instructions();

// Computes the products on libtorch's threads. k is divided into parts of 256. Each part of a sum is one chain of fused
// multiply-adds in the order of k. One more fused multiply-add adds each part times alpha; the first part is added to
// beta * plus, which is rounded before. The result does not depend on the number of threads, the processor, or the
// other rows and columns. Reads and writes nothing outside of the matrices. Throws std::bad_alloc, after which c may be
// partly written, and ConfigError if has_gemm() is false.
COMPOSER_EXPORT void gemm(const Gemm& product, const GemmBatch& batch = {});

// packed_floats() is the number of floats that pack() writes. pack() copies b, of a product with these n and k, in the
// order in which gemm() reads it. This pays for many products with the same b, each on one thread.
COMPOSER_EXPORT std::int64_t packed_floats(std::int64_t n, std::int64_t k);
COMPOSER_EXPORT void pack(const Operand& b, std::int64_t n, std::int64_t k, float* to);

// For tests: uses the instructions of another processor, which this one must support: "AVX2" or "none". nullptr: the
// best ones.
COMPOSER_EXPORT void use_gemm_instructions(const char* name);

}  // namespace composer::kernels
