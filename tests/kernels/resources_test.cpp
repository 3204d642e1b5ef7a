// What a product takes beside its operands: threads and memory.
#include <algorithm>
#include <ctime>
#include <new>
#include <thread>
#include <unistd.h>
#include <vector>

#include "composer/kernels/gemm.h"
#include "tests/kernels/support.h"
#include "tests/support/doctest.h"
#include "tests/support/system_calls.h"

namespace composer::resources_test {

using kernels::Gemm;

namespace {

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Of a square product whose b is transposed, so that it is copied; all elements are `size`.
class Square {
 public:
  explicit Square(std::int64_t size)
      : g_{.m = size, .n = size, .k = size, .a = {}, .b = {}, .c = nullptr, .c_row = size},
        ones_(static_cast<std::size_t>(size * size), 1),
        result_(ones_.size()) {
    g_.a = {ones_.data(), size, 1};
    g_.b = {ones_.data(), 1, size};
    g_.c = result_.data();
  }
  bool compute() {
    std::ranges::fill(result_, 0.0F);
    multiply();
    return is_right();
  }
  void multiply() { gemm(g_); }
  bool is_right() const {
    return std::ranges::all_of(result_, [this](float value) { return value == static_cast<float>(g_.k); });
  }

 private:
  Gemm g_;
  std::vector<float> ones_, result_;
};

}  // namespace

TEST_CASE("A large product is computed by several threads, and a small one by its own alone") {
  if (!kernels::has_gemm() || sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
  const auto share_of_others = [](std::int64_t size, int times) {
    const test::Threads two(2);
    Square square(size);
    const double all = seconds(CLOCK_PROCESS_CPUTIME_ID), own = seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < times; ++i) square.multiply();
    const double of_all = seconds(CLOCK_PROCESS_CPUTIME_ID) - all;
    const double share = 1 - (seconds(CLOCK_THREAD_CPUTIME_ID) - own) / of_all;
    REQUIRE(square.is_right());
    return share;
  };
  CHECK(share_of_others(1024, 3) > 0.2);
  usleep(300000);  // threads that wait actively for their next part give up
  CHECK(share_of_others(64, 2000) < 0.1);
}

TEST_CASE("A product without memory for its copies throws, and is computed once there is memory") {
  if (!kernels::has_gemm()) return;
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    const test::Threads some(threads);
    Square square(600);
    bool thrown = false, is_right = false;
    // On a thread that has no copies of an earlier product.
    std::thread([&] {
      {
        const test::NoAlignedMemory none;
        try {
          square.compute();
        } catch (const std::bad_alloc&) {
          thrown = true;
        }
      }
      is_right = square.compute();
    }).join();
    CHECK(thrown);
    CHECK(is_right);
  }
}

}  // namespace composer::resources_test
