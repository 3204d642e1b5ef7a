#pragma once
// The innermost loops of a product: one tile of the result, and the copies that bring operands into the order in which
// tiles read them. Templates over the vector types of processors. Each gemm_*.cpp is compiled for one instruction set,
// and uses no function of the standard library, because the linker might use that copy of the function in the whole
// program.
#include <cstdint>
#include <utility>

#include "composer/kernels/gates.h"
#include "composer/kernels/softmax.h"

namespace composer::kernels {

// Computes beta * plus + alpha * (a b) for up to kRows rows and kPanel columns; the last multiply-add of each element
// is fused, too. Strides in elements; the columns of b, c and plus are adjacent. Each element of a b is one chain of
// fused multiply-adds in the order of k, on every processor.
struct Tile {
  std::int64_t k;
  const float* a;
  std::int64_t a_row, a_column;  // one of them is 1
  const float* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  const float* plus;  // nullptr: none; may be c
  std::int64_t plus_row;
  float alpha, beta;
  bool relu;
  int columns;  // 1 to kPanel
};

// The kernels of one instruction set, for gemm.cpp.
struct MicroKernels {
  const char* name;
  int rows;   // rows of the largest tile
  int panel;  // columns of the largest tile
  int width;  // floats in a vector
  using Multiply = void (*)(const Tile&);
  // Returns the kernel for a tile of `rows` rows and `vectors` vectors of columns, with a.row or a.column equal to 1.
  Multiply (*multiply)(int rows, int vectors, bool adjacent_rows);
  // to[k * stride + j] = from[k * row + j] for j < n, and 0 for j from n to stride - 1
  void (*copy)(const float* from, std::int64_t row, std::int64_t k, int n, int stride, float* to);
  // to[k * stride + j] = from[j * row + k] for j < n, and 0 for j from n to stride - 1
  void (*transpose)(const float* from, std::int64_t row, std::int64_t k, int n, int stride, float* to);
  // Converts `count` numbers from bfloat16 to fp32, or back: rounded to nearest even, and NaN becomes 0x7fc0.
  void (*widen)(const std::uint16_t* from, std::int64_t count, float* to);
  void (*narrow)(const float* from, std::int64_t count, std::uint16_t* to);
  void (*cell_forward)(const CellForward&);
  void (*cell_backward)(const CellBackward&);
  void (*softmax)(const Softmax&);
  void (*softmax_backward)(const SoftmaxBackward&);
};

// The kernels in use (gemm.h). Throws ConfigError if has_gemm() is false.
const MicroKernels& micro_kernels();

#if defined(__x86_64__)
const MicroKernels& avx2_kernels();
const MicroKernels& avx512_kernels();
#endif

// Each way to end a tile has a loop without conditions: for a short k, the end takes as long as the products.
template <class Lanes, bool PLUS, bool OTHERS, int ROWS, int VECTORS>
__attribute__((always_inline)) inline void finish(const Tile& t, typename Lanes::V (&sums)[ROWS][VECTORS]) {
  constexpr std::int64_t kWidth = Lanes::kWidth;
  const auto all = Lanes::mask(kWidth), last = Lanes::mask(t.columns - (VECTORS - 1) * kWidth);
  const auto alpha = Lanes::broadcast(&t.alpha), beta = Lanes::broadcast(&t.beta);
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) {
      const auto mask = v + 1 < VECTORS ? all : last;
      auto sum = sums[i][v];
      if (PLUS) {
        const auto plus = Lanes::load(t.plus + i * t.plus_row + v * kWidth, mask);
        sum = OTHERS ? Lanes::multiply_add(sum, alpha, Lanes::multiply(plus, beta)) : Lanes::add(sum, plus);
      } else if (OTHERS) {
        sum = Lanes::multiply(sum, alpha);
      }
      if (OTHERS && t.relu) sum = Lanes::relu(sum);
      Lanes::store(t.c + i * t.c_row + v * kWidth, mask, sum);
    }
}

template <int ROWS, int VECTORS, std::int64_t WIDTH>
__attribute__((always_inline)) inline void prefetch(const Tile& t) {
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) __builtin_prefetch(t.c + i * t.c_row + v * WIDTH, 1);
}

// Lanes describes the vectors of an instruction set: their type V, a Mask of the first n lanes, and the operations.
template <class Lanes, int ROWS, int VECTORS, bool ADJACENT_ROWS>
void multiply_tile(const Tile& t) {
  using V = typename Lanes::V;
  constexpr std::int64_t kWidth = Lanes::kWidth;
  constexpr std::int64_t kLong = 64;  // c arrives in the cache during the products
  V sums[ROWS][VECTORS];
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) sums[i][v] = Lanes::zero();
  if (t.k >= kLong) prefetch<ROWS, VECTORS, kWidth>(t);
  const auto last = Lanes::mask(t.columns - (VECTORS - 1) * kWidth);
  const std::int64_t row = ADJACENT_ROWS ? 1 : t.a_row, step = ADJACENT_ROWS ? t.a_column : 1;
  // Pointers to every third row of a suffice, because the other rows can be addressed relative to them; this saves
  // registers.
  constexpr std::int64_t kPointers = ADJACENT_ROWS ? 1 : (ROWS + 2) / 3, kApart = ADJACENT_ROWS ? ROWS : 3;
  const float* a[kPointers];
#pragma GCC unroll 5
  for (std::int64_t p = 0; p < kPointers; ++p) a[p] = t.a + p * kApart * row;
  const float* b = t.b;
  for (std::int64_t k = 0; k < t.k; ++k) {
    V of_b[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v + 1 < VECTORS; ++v) of_b[v] = Lanes::load(b + v * kWidth);
    of_b[VECTORS - 1] = Lanes::load(b + (VECTORS - 1) * kWidth, last);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const V of_a = Lanes::broadcast(a[i / kApart] + i % kApart * row);
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) sums[i][v] = Lanes::multiply_add(of_a, of_b[v], sums[i][v]);
    }
#pragma GCC unroll 5
    for (std::int64_t p = 0; p < kPointers; ++p) a[p] += step;
    b += t.b_row;
  }
  if (t.alpha == 1 && t.beta == 1 && !t.relu)
    t.plus ? finish<Lanes, true, false>(t, sums) : finish<Lanes, false, false>(t, sums);
  else
    t.plus ? finish<Lanes, true, true>(t, sums) : finish<Lanes, false, true>(t, sums);
}

template <class Lanes>
void copy_panel(const float* from, std::int64_t row, std::int64_t k, int n, int stride, float* to) {
  for (std::int64_t j = 0; j < stride; j += Lanes::kWidth) {
    const auto in = Lanes::mask(n - j), out = Lanes::mask(stride - j);
    for (std::int64_t i = 0; i < k; ++i) Lanes::store(to + i * stride + j, out, Lanes::load(from + i * row + j, in));
  }
}

// Transposes a square of a panel, or the part of it that exists: `n` rows of `from` and `k` of their columns.
template <class Lanes>
__attribute__((always_inline)) inline void transpose_square(const float* from, std::int64_t row, std::int64_t k,
                                                            std::int64_t n, std::int64_t stride, float* to,
                                                            std::int64_t columns) {
  constexpr std::int64_t kWidth = Lanes::kWidth;
  typename Lanes::V square[kWidth];
  if (k == kWidth && n == kWidth) {
    Lanes::load_columns(from, row, square);
#pragma GCC unroll 16
    for (int s = 0; s < kWidth; ++s) Lanes::store(to + s * stride, square[s]);
    return;
  }
  const auto in = Lanes::mask(k), out = Lanes::mask(columns);
#pragma GCC unroll 16
  for (int s = 0; s < kWidth; ++s) square[s] = s < n ? Lanes::load(from + s * row, in) : Lanes::zero();
  Lanes::transpose(square);
#pragma GCC unroll 16
  for (int s = 0; s < kWidth; ++s)
    if (s < k) Lanes::store(to + s * stride, out, square[s]);
}

template <class Lanes>
void transpose_panel(const float* from, std::int64_t row, std::int64_t k, int n, int stride, float* to) {
  constexpr std::int64_t kWidth = Lanes::kWidth;
  const auto at_most = [](std::int64_t size) { return size < kWidth ? size : kWidth; };
  for (std::int64_t j = 0; j < stride; j += kWidth)
    for (std::int64_t i = 0; i < k; i += kWidth)
      transpose_square<Lanes>(from + j * row + i, row, at_most(k - i), at_most(n - j), stride, to + i * stride + j,
                              stride - j);
}

template <class Lanes>
void widen(const std::uint16_t* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + Lanes::kWidth <= count; i += Lanes::kWidth) Lanes::store(to + i, Lanes::widen(from + i));
  for (; i < count; ++i) to[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(from[i]) << 16);
}

template <class Lanes>
void narrow(const float* from, std::int64_t count, std::uint16_t* to) {
  std::int64_t i = 0;
  for (; i + Lanes::kWidth <= count; i += Lanes::kWidth) Lanes::narrow(Lanes::load(from + i), to + i);
  for (; i < count; ++i) {
    const auto number = __builtin_bit_cast(std::uint32_t, from[i]);
    const std::uint32_t rounded = (number + 0x7fff + (number >> 16 & 1)) >> 16;
    to[i] = static_cast<std::uint16_t>((number & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
  }
}

// ROWS: rows of the largest tile, which is two vectors wide and whose sums all fit into registers.
template <class Lanes, int ROWS>
struct Table {
  template <int VECTORS, bool ADJACENT_ROWS, int... BEFORE>
  static MicroKernels::Multiply of(int rows, std::integer_sequence<int, BEFORE...>) {
    static constexpr MicroKernels::Multiply kAll[] = {&multiply_tile<Lanes, BEFORE + 1, VECTORS, ADJACENT_ROWS>...};
    return kAll[rows - 1];
  }
  static MicroKernels::Multiply multiply(int rows, int vectors, bool adjacent_rows) {
    using Rows = std::make_integer_sequence<int, ROWS>;
    if (vectors == 1) return adjacent_rows ? of<1, true>(rows, Rows()) : of<1, false>(rows, Rows());
    return adjacent_rows ? of<2, true>(rows, Rows()) : of<2, false>(rows, Rows());
  }
  static constexpr MicroKernels kernels(const char* name) {
    return {.name = name,
            .rows = ROWS,
            .panel = static_cast<int>(2 * Lanes::kWidth),
            .width = static_cast<int>(Lanes::kWidth),
            .multiply = &multiply,
            .copy = &copy_panel<Lanes>,
            .transpose = &transpose_panel<Lanes>,
            .widen = &widen<Lanes>,
            .narrow = &narrow<Lanes>,
            .cell_forward = &cell_forward<Lanes>,
            .cell_backward = &cell_backward<Lanes>,
            .softmax = &softmax<Lanes>,
            .softmax_backward = &softmax_backward<Lanes>};
  }
};

}  // namespace composer::kernels
