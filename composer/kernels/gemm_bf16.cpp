#include "composer/kernels/gemm_bf16.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <ATen/Parallel.h>

#include "composer/kernels/micro_kernel.h"
#include "composer/util/parallel.h"

namespace composer::kernels {
namespace {

constexpr double kSmall = 1 << 21;              // multiply-adds; with so few, gemm() uses one thread
constexpr double kFloats = 1 << 20;             // elements of operands and result, which a thread keeps in fp32
constexpr double kBatchWorthThreads = 1 << 22;  // multiply-adds of a batch

thread_local std::vector<float> scratch;

const std::uint16_t* bits(const c10::BFloat16* data) { return reinterpret_cast<const std::uint16_t*>(data); }

// Converts `lines` lines of `length` adjacent elements, whose beginnings are `apart` elements apart.
void widen(const MicroKernels& kernels, const c10::BFloat16* from, std::int64_t apart, std::int64_t lines,
           std::int64_t length, float* to) {
  if (apart == length) return kernels.widen(bits(from), lines * length, to);
  for (std::int64_t line = 0; line < lines; ++line)
    kernels.widen(bits(from) + line * apart, length, to + line * length);
}

// Returns a copy in fp32 with the same order in memory.
Operand widen(const MicroKernels& kernels, const Bf16Operand& from, std::int64_t rows, std::int64_t columns,
              float* to) {
  if (from.column == 1) {
    widen(kernels, from.data, from.row, rows, columns, to);
    return {.data = to, .row = columns, .column = 1};
  }
  if (from.row == 1) {
    widen(kernels, from.data, from.column, columns, rows, to);
    return {.data = to, .row = 1, .column = rows};
  }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[i * columns + j] = from.data[i * from.row + j * from.column];
  return {.data = to, .row = columns, .column = 1};
}

void multiply(const MicroKernels& kernels, const Bf16Gemm& g) {
  const std::int64_t plus_rows = !g.plus ? 0 : g.plus_row == 0 ? 1 : g.m;
  const auto floats = static_cast<std::size_t>(g.m * g.k + g.k * g.n + (g.m + plus_rows) * g.n);
  if (scratch.size() < floats) scratch.resize(floats);
  float *a = scratch.data(), *b = a + g.m * g.k, *c = b + g.k * g.n, *plus = c + g.m * g.n;
  if (g.plus) widen(kernels, g.plus, g.plus_row, plus_rows, g.n, plus);
  gemm({.m = g.m,
        .n = g.n,
        .k = g.k,
        .a = widen(kernels, g.a, g.m, g.k, a),
        .b = widen(kernels, g.b, g.k, g.n, b),
        .c = c,
        .c_row = g.n,
        .plus = g.plus ? plus : nullptr,
        .plus_row = plus_rows == 1 ? 0 : g.n,
        .alpha = g.alpha,
        .beta = g.beta});
  auto* to = reinterpret_cast<std::uint16_t*>(g.c);
  if (g.c_row == g.n) return kernels.narrow(c, g.m * g.n, to);
  for (std::int64_t i = 0; i < g.m; ++i) kernels.narrow(c + i * g.n, g.n, to + i * g.c_row);
}

}  // namespace

bool is_small_for_bf16(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n), depth = static_cast<double>(k);
  return rows * columns * depth < kSmall && rows * depth + depth * columns + 2 * rows * columns < kFloats;
}

void gemm_bf16(const Bf16Gemm& g, const GemmBatch& batch) {
  const MicroKernels& kernels = micro_kernels();
  const auto compute = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Bf16Gemm one = g;
      one.a.data += i * batch.a;
      one.b.data += i * batch.b;
      one.c += i * batch.c;
      if (g.plus) one.plus += i * batch.plus;
      multiply(kernels, one);
    }
  };
  const double work = static_cast<double>(g.m * batch.size) * static_cast<double>(g.n) * static_cast<double>(g.k);
  if (batch.size == 1 || work < kBatchWorthThreads || at::in_parallel_region()) return compute(0, batch.size);
  parallel_for(0, batch.size, 1, compute);
}

}  // namespace composer::kernels
