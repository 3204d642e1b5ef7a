#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <ATen/Parallel.h>

#include <sys/mman.h>

#include "composer/kernels/gemm.h"
#include "composer/kernels/products.h"

namespace composer::test {

// The kernels of another instruction set until the end of the scope.
struct Instructions {
  explicit Instructions(const char* name) { kernels::use_gemm_instructions(name); }
  ~Instructions() { kernels::use_gemm_instructions(nullptr); }
  Instructions(const Instructions&) = delete;
  Instructions& operator=(const Instructions&) = delete;
};

struct Threads {
  explicit Threads(int count) : before(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  int before;
};

// Floats between two pages that end the program when they are read or written.
class Fenced {
 public:
  explicit Fenced(std::size_t floats) : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    bytes_ = (floats * sizeof(float) + page_ - 1) / page_ * page_;
    void* all = ::mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::runtime_error("mmap failed");
    begin_ = static_cast<char*>(all) + page_;
    if (::mprotect(begin_, bytes_, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
  }
  ~Fenced() { ::munmap(begin_ - page_, bytes_ + 2 * page_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  // So many floats at the end, or at the beginning.
  float* place(std::size_t floats, bool at_end) {
    if (floats * sizeof(float) > bytes_) throw std::runtime_error("too many floats for this fence");
    return reinterpret_cast<float*>(begin_ + (at_end ? bytes_ - floats * sizeof(float) : 0));
  }

 private:
  std::size_t page_, bytes_ = 0;
  char* begin_ = nullptr;
};

// What gemm.h promises, one element after the other.
inline void reference(const kernels::Gemm& g) {
  constexpr std::int64_t kPart = 256;
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t j = 0; j < g.n; ++j) {
      float sum = 0;
      for (std::int64_t from = 0; from < g.k; from += kPart) {
        float part = 0;
        for (std::int64_t k = from; k < std::min(g.k, from + kPart); ++k)
          part = std::fma(g.a.data[i * g.a.row + k * g.a.column], g.b.data[k * g.b.row + j * g.b.column], part);
        if (from > 0)
          sum = std::fma(part, g.alpha, sum);
        else if (g.plus)
          sum = std::fma(part, g.alpha, g.plus[i * g.plus_row + j] * g.beta);
        else
          sum = part * g.alpha;
      }
      g.c[i * g.c_row + j] = g.relu && sum < 0 ? 0 : sum;
    }
}

inline bool same_bits(const float* a, const float* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  return true;
}

// Each product by our own kernels.
inline kernels::ProductTable everything() {
  kernels::ProductTable table;
  table.set_others(true);
  return table;
}

}  // namespace composer::test
