#include "composer/util/page_heap.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/support/doctest.h"

namespace composer::util::page_heap_test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Takes blocks and frees them in reverse, as a step does. None is written to, so that no memory is needed.
void step(PageHeap& heap, std::size_t blocks, std::size_t bytes) {
  std::vector<void*> taken;
  for (std::size_t i = 0; i < blocks; ++i) taken.push_back(heap.take(bytes));
  for (; !taken.empty(); taken.pop_back()) heap.give(taken.back());
}

TEST_CASE("PageHeap gives the memory of one large phase back while smaller steps follow") {
  PageHeap heap;
  step(heap, 100, 4 * kMiB);
  REQUIRE(heap.memory().cached == 400 * kMiB);
  for (int i = 0; i < 20; ++i) step(heap, 10, 4 * kMiB);
  CHECK(heap.memory().cached == 400 * kMiB);  // it may come again soon
  for (int i = 0; i < 400; ++i) step(heap, 10, 4 * kMiB);
  CHECK(heap.memory().cached <= 64 * kMiB);
  CHECK(heap.memory().cached >= 40 * kMiB);
}

TEST_CASE("PageHeap keeps what steps need again, also if only each tenth needs all of it") {
  PageHeap heap;
  step(heap, 40, 4 * kMiB);
  for (int i = 0; i < 1000; ++i) {
    step(heap, i % 10 == 0 ? 40 : 10, 4 * kMiB);
    REQUIRE(heap.memory().cached == 160 * kMiB);
  }
}

TEST_CASE("PageHeap keeps an eighth more than is needed at once, and no quarter, for steps of changing lengths") {
  PageHeap heap;
  std::mt19937_64 random(1);
  std::size_t most = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::size_t bytes = (64 + random() % 192) * 16384;
    step(heap, 100, bytes);
    most = std::max(most, 100 * bytes);
    REQUIRE(heap.memory().cached <= most + most / 8 + 2 * kMiB);
  }
  CHECK(heap.trimmed() < 100 * most);
}

TEST_CASE("PageHeap soon gives little back to the system while tensors live for random times") {
  PageHeap heap;
  std::mt19937_64 random(1);
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Block> blocks(200);
  std::size_t taken = 0, trimmed = 0, most = 0, resident_most = 0;
  const auto resident = [&] { return heap.memory().used + heap.memory().cached; };
  for (int i = 0; i < 20000; ++i) {
    if (i == 10000) taken = 0, trimmed = heap.trimmed();
    Block& block = blocks[random() % blocks.size()];
    if (block.data) heap.give(block.data);
    const double uniform = static_cast<double>(random() % 100000) / 1e5;
    block.bytes = static_cast<std::size_t>(65537 * std::exp2(8 * uniform));  // 64 KiB to 16 MiB
    block.data = heap.take(block.bytes);
    taken += block.bytes;
    most = std::max(most, heap.memory().used);
    resident_most = std::max(resident_most, resident());
  }
  CHECK(heap.trimmed() - trimmed < taken / 128);
  CHECK(resident_most <= most + most / 4 + 16 * kMiB);
}

TEST_CASE("PageHeap keeps to a limit that was set, whatever has been in use") {
  PageHeap heap;
  heap.set_limit(8 * kMiB);
  for (int i = 0; i < 100; ++i) {
    step(heap, 40, 4 * kMiB);
    REQUIRE(heap.memory().cached <= 8 * kMiB);
  }
}

}  // namespace
}  // namespace composer::util::page_heap_test
