#include "composer/kernels/gemm.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>

#include <ATen/Parallel.h>

#include "composer/core/error.h"
#include "composer/kernels/micro_kernel.h"
#include "composer/util/parallel.h"

namespace composer::kernels {
namespace {

// k is divided into parts of this length; each part of a sum is added to c separately. This is a part of the definition
// of the result (gemm.h). The constants below only decide what stays in which cache: kRows x kPart floats of a in the
// second level, kPart x panel of b in the first.
constexpr std::int64_t kPart = 256;
constexpr std::int64_t kRowsOfA = 224, kColumns = 1024;
// Operands that are read fewer times than this are not copied: a copy costs about as much as reading twice.
constexpr std::int64_t kReadsOfA = 16, kReadsOfB = 8;
// Floats from the first row of a part of b to the last, so that the part stays in the cache.
constexpr std::int64_t kNear = 1 << 16;
// Strips of rows; with so few, each panel of a transposed b is used as soon as it is copied.
constexpr std::int64_t kFewStrips = 4;
constexpr std::int64_t kFarApart = 512;  // floats from one k to the next, so that each is soon on another page
constexpr std::int64_t kLines = 8;  // lines of an operand that are copied together, so that each page is visited once
// Multiply-adds that take some 50 us; waking a sleeping thread takes 20 us.
constexpr double kGemmWorthThreads = 1 << 22;

const MicroKernels* best() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return &avx512_kernels();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2_kernels();
#endif
  return nullptr;
}

std::atomic<const MicroKernels*>& in_use() {
  static std::atomic<const MicroKernels*> kernels{best()};
  return kernels;
}

std::int64_t parts(std::int64_t size, std::int64_t largest) { return (size + largest - 1) / largest; }

// The beginning of part i, if `size` is divided into `count` parts whose sizes differ by at most one.
std::int64_t part_begin(std::int64_t size, std::int64_t count, std::int64_t i) { return size * i / count; }

// A buffer for copies of panels, which a thread reuses for its next product.
class PanelBuffer {
 public:
  float* get(std::int64_t floats) {
    if (floats > size_) {
      memory_.reset();
      size_ = 0;
      const auto bytes = static_cast<std::size_t>(parts(floats, 16) * 16) * sizeof(float);
      memory_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
      if (!memory_) throw std::bad_alloc();
      size_ = floats;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
  std::int64_t size_ = 0;
};

thread_local PanelBuffer panels_a, panels_b;

// Computes a product on one thread.
class Blocks {
 public:
  Blocks(const MicroKernels& kernels, const Gemm& g) : kernels_(kernels), g_(g) {
    const std::int64_t panels = parts(g.n, kernels.panel), strips = parts(g.m, kernels.rows);
    const bool a_is_adjacent = g.a.row == 1 || g.a.column == 1;
    const bool far = g.a.column != 1 && g.a.column >= kFarApart;
    const bool b_is_near = g.b.row * std::min(g.k, kPart) <= kNear;
    copies_b_ = !g.packed && (g.b.column != 1 || (strips > kReadsOfB && !b_is_near));
    const bool few = copies_b_ && strips <= kFewStrips;
    columns_ = few ? kernels.panel : kColumns;
    copies_a_ = !a_is_adjacent || (!few && panels > (far ? 1 : kReadsOfA));
    const std::int64_t k = std::min(g.k, kPart);
    if (copies_a_) a_ = panels_a.get(std::min(g.m, kRowsOfA) * k);
    b_ = g.packed;
    if (copies_b_) b_ = room_for_b_ = panels_b.get(parts(std::min(g.n, columns_), kernels.panel) * kernels.panel * k);
  }

  void run() {
    for (std::int64_t j = 0; j < g_.n; j += columns_) {
      const std::int64_t columns = std::min(g_.n - j, columns_);
      for (std::int64_t k = 0; k < g_.k; k += kPart) {
        const std::int64_t depth = std::min(g_.k - k, kPart);
        if (copies_b_) copy_b(k, depth, j, columns, room_for_b_);
        if (g_.packed) b_ = g_.packed + j * g_.k + padded(columns) * k;
        const std::int64_t blocks = parts(g_.m, kRowsOfA);
        for (std::int64_t block = 0; block < blocks; ++block) {
          const std::int64_t i = part_begin(g_.m, blocks, block);
          multiply(i, part_begin(g_.m, blocks, block + 1) - i, j, columns, k, depth);
        }
      }
    }
  }

  // Copies all of b, in the order in which run() reads its parts.
  void pack(float* to) const {
    for (std::int64_t j = 0; j < g_.n; j += kColumns) {
      const std::int64_t columns = std::min(g_.n - j, kColumns);
      for (std::int64_t k = 0; k < g_.k; k += kPart) {
        const std::int64_t depth = std::min(g_.k - k, kPart);
        copy_b(k, depth, j, columns, to);
        to += padded(columns) * depth;
      }
    }
  }

 private:
  std::int64_t padded(std::int64_t columns) const { return parts(columns, kernels_.panel) * kernels_.panel; }

  // Calls visit(first row, rows) for strips whose heights differ by at most one.
  template <class Visit>
  void for_strips(std::int64_t rows, const Visit& visit) const {
    const std::int64_t strips = parts(rows, kernels_.rows), lowest = rows / strips, higher = rows % strips;
    for (std::int64_t strip = 0, from = 0; strip < strips; ++strip) {
      const std::int64_t height = lowest + (strip < higher);
      visit(from, static_cast<int>(height));
      from += height;
    }
  }

  // Multiplies `rows` rows from row i on by `columns` columns from column j on, for one part of k.
  void multiply(std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns, std::int64_t k,
                std::int64_t depth) {
    if (copies_a_) copy_a(i, rows, k, depth);
    const bool first = k == 0, last = k + depth == g_.k;
    const float* a = g_.a.data + i * g_.a.row + k * g_.a.column;
    for (std::int64_t panel = 0; panel < columns; panel += kernels_.panel) {
      float* c = g_.c + i * g_.c_row + j + panel;
      const float* plus = first ? g_.plus + (g_.plus ? i * g_.plus_row + j + panel : 0) : c;
      Tile tile{.k = depth,
                .a = a,
                .a_row = g_.a.row,
                .a_column = g_.a.column,
                .b = b_ ? b_ + panel * depth : g_.b.data + k * g_.b.row + j + panel,
                .b_row = b_ ? kernels_.panel : g_.b.row,
                .c = c,
                .c_row = g_.c_row,
                .plus = plus,
                .plus_row = first ? g_.plus_row : g_.c_row,
                .alpha = g_.alpha,
                .beta = first ? g_.beta : 1,
                .relu = g_.relu && last,
                .columns = static_cast<int>(std::min<std::int64_t>(columns - panel, kernels_.panel))};
      const int vectors = tile.columns > kernels_.width ? 2 : 1;
      for_strips(rows, [&](std::int64_t from, int height) {
        if (copies_a_) {
          tile.a = a_ + from * depth;
          tile.a_row = 1;
          tile.a_column = height;
        } else {
          tile.a = a + from * g_.a.row;
        }
        tile.c = c + from * g_.c_row;
        if (plus) tile.plus = plus + from * tile.plus_row;
        kernels_.multiply(height, vectors, tile.a_column != 1)(tile);
      });
    }
  }

  void copy_a(std::int64_t i, std::int64_t rows, std::int64_t k, std::int64_t depth) {
    const float* a = g_.a.data + i * g_.a.row + k * g_.a.column;
    const std::int64_t lines = g_.a.row == 1 ? kLines : depth;
    for (std::int64_t line = 0; line < depth; line += lines)
      for_strips(rows, [&](std::int64_t from, int height) {
        copy(a + from * g_.a.row + line * g_.a.column, g_.a.column, g_.a.row, std::min(lines, depth - line), height,
             height, a_ + from * depth + line * height);
      });
  }

  void copy_b(std::int64_t k, std::int64_t depth, std::int64_t j, std::int64_t columns, float* to) const {
    const float* b = g_.b.data + k * g_.b.row + j * g_.b.column;
    const std::int64_t lines = g_.b.column == 1 ? kLines : depth;
    for (std::int64_t line = 0; line < depth; line += lines)
      for (std::int64_t panel = 0; panel < columns; panel += kernels_.panel)
        copy(b + line * g_.b.row + panel * g_.b.column, g_.b.row, g_.b.column, std::min(lines, depth - line),
             static_cast<int>(std::min<std::int64_t>(columns - panel, kernels_.panel)), kernels_.panel,
             to + panel * depth + line * kernels_.panel);
  }

  // to[k * stride + j] = from[k * along + j * across]
  void copy(const float* from, std::int64_t along, std::int64_t across, std::int64_t depth, int n, int stride,
            float* to) const {
    if (across == 1) return kernels_.copy(from, along, depth, n, stride, to);
    if (along == 1) return kernels_.transpose(from, across, depth, n, stride, to);
    for (std::int64_t k = 0; k < depth; ++k)
      for (int j = 0; j < stride; ++j) to[k * stride + j] = j < n ? from[k * along + j * across] : 0;
  }

  const MicroKernels& kernels_;
  const Gemm& g_;
  bool copies_a_, copies_b_;
  std::int64_t columns_;  // computed before the next part of k
  float *a_ = nullptr, *room_for_b_ = nullptr;
  const float* b_ = nullptr;  // copies of panels; nullptr: b is read in place
};

Gemm in_batch(Gemm g, const GemmBatch& batch, std::int64_t i) {
  g.a.data += i * batch.a;
  g.b.data += i * batch.b;
  g.c += i * batch.c;
  if (g.plus) g.plus += i * batch.plus;
  return g;
}

Gemm rectangle(Gemm g, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
  g.a.data += row * g.a.row;
  g.b.data += column * g.b.column;
  g.c += row * g.c_row + column;
  if (g.plus) g.plus += row * g.plus_row + column;
  g.m = rows;
  g.n = columns;
  return g;
}

// The numbers of rows and columns of rectangles into which a product is divided, so that the largest rectangle has the
// fewest tiles.
std::array<std::int64_t, 2> grid(const MicroKernels& kernels, const Gemm& g, std::int64_t threads) {
  const std::int64_t strips = parts(g.m, kernels.rows), panels = parts(g.n, kernels.panel);
  std::array<std::int64_t, 2> best{1, 1};
  std::int64_t least = strips * panels;
  for (std::int64_t down = std::min(threads, strips); down >= 1; --down) {
    const std::int64_t across = std::min(threads / down, panels);
    const std::int64_t tiles = parts(strips, down) * parts(panels, across);
    if (tiles < least) {
      least = tiles;
      best = {down, across};
    }
  }
  return best;
}

}  // namespace

bool has_gemm() { return in_use() != nullptr; }
const char* gemm_instructions() { return has_gemm() ? in_use().load()->name : "none"; }

const MicroKernels& micro_kernels() {
  const MicroKernels* kernels = in_use().load(std::memory_order_relaxed);
  if (!kernels) throw ConfigError("gemm: this processor has neither AVX-512 nor AVX2 with FMA; ask has_gemm() first");
  return *kernels;
}

std::int64_t packed_floats(std::int64_t n, std::int64_t k) {
  const std::int64_t panel = micro_kernels().panel;
  return parts(n, panel) * panel * k;
}

void pack(const Operand& b, std::int64_t n, std::int64_t k, float* to) {
  const Gemm product{
      .m = 1, .n = n, .k = k, .a = {.data = nullptr, .row = k, .column = 1}, .b = b, .c = nullptr, .c_row = n};
  Blocks(micro_kernels(), product).pack(to);
}

void gemm(const Gemm& g, const GemmBatch& batch) {
  const MicroKernels& kernels = micro_kernels();
  const double work = static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  const std::int64_t threads = at::get_num_threads();
  if (threads == 1 || g.packed || work * static_cast<double>(batch.size) < kGemmWorthThreads ||
      at::in_parallel_region()) {
    for (std::int64_t i = 0; i < batch.size; ++i) Blocks(kernels, in_batch(g, batch, i)).run();
    return;
  }
  // Each thread computes whole products, or all threads compute parts of one product after the other.
  const std::array<std::int64_t, 2> divided =
      batch.size >= threads || work < kGemmWorthThreads ? std::array<std::int64_t, 2>{1, 1} : grid(kernels, g, threads);
  const std::int64_t down = divided[0], across = divided[1];
  parallel_for(0, batch.size * down * across, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t i = task / (down * across), row = task / across % down, column = task % across;
      const std::int64_t strips = parts(g.m, kernels.rows), panels = parts(g.n, kernels.panel);
      const std::int64_t top = part_begin(strips, down, row) * kernels.rows,
                         left = part_begin(panels, across, column) * kernels.panel;
      const std::int64_t bottom = std::min(g.m, part_begin(strips, down, row + 1) * kernels.rows);
      const std::int64_t right = std::min(g.n, part_begin(panels, across, column + 1) * kernels.panel);
      Blocks(kernels, rectangle(in_batch(g, batch, i), top, bottom - top, left, right - left)).run();
    }
  });
}

void use_gemm_instructions(const char* name) {
  const MicroKernels* wanted = name != nullptr && std::string_view(name) == "none" ? nullptr : best();
#if defined(__x86_64__)
  if (name != nullptr && std::string_view(name) == "AVX2") wanted = &avx2_kernels();
#endif
  in_use() = wanted;
}

}  // namespace composer::kernels
