#pragma once
// Products of small bfloat16 matrices, summed as gemm() sums in fp32.
#include <cstdint>

#include <c10/util/BFloat16.h>

#include "composer/core/export.h"
#include "composer/kernels/gemm.h"

namespace composer::kernels {

// A matrix in memory: element (i, j) is data[i * row + j * column].
struct Bf16Operand {
  const c10::BFloat16* data;
  std::int64_t row, column;  // strides in elements, >= 0
};

// c = beta * plus + alpha * (a b). The fields have the same meaning as in Gemm.
struct Bf16Gemm {
  std::int64_t m, n, k;
  Bf16Operand a, b;
  c10::BFloat16* c;
  std::int64_t c_row;
  const c10::BFloat16* plus = nullptr;
  std::int64_t plus_row = 0;
  float alpha = 1, beta = 1;
};

// Whether gemm_bf16() is meant for matrices of these sizes, which must be at least 1. For larger ones, processors with
// bf16 instructions are faster by using them.
COMPOSER_EXPORT bool is_small_for_bf16(std::int64_t m, std::int64_t n, std::int64_t k);

// Computes what gemm() would compute from the operands in fp32, and rounds each element once, at the end, to nearest
// even. The result has the same bits for any number of threads and on any processor. Throws like gemm().
COMPOSER_EXPORT void gemm_bf16(const Bf16Gemm& product, const GemmBatch& batch = {});

}  // namespace composer::kernels
