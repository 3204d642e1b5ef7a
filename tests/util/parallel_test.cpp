#include "composer/util/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <ostream>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>

#include <doctest/doctest.h>

#include "composer/util/threads_here.h"

namespace composer::parallel_test {
namespace {

// For one test, of libtorch.
struct Threads {
  explicit Threads(int threads) { at::set_num_threads(threads); }
  ~Threads() { at::set_num_threads(before); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  int before = at::get_num_threads();
};

struct Part {
  std::int64_t first, last;
  int thread;
  auto operator<=>(const Part&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Part& part) {
    return out << part.thread << ": [" << part.first << ", " << part.last << ')';
  }
};

std::vector<Part> parts_of(std::int64_t begin, std::int64_t end, std::int64_t grain_size) {
  std::vector<Part> parts;
  std::mutex mutex;
  parallel_for(begin, end, grain_size, [&](std::int64_t first, std::int64_t last) {
    const std::lock_guard lock(mutex);
    parts.push_back({first, last, at::get_thread_num()});
  });
  std::ranges::sort(parts);
  return parts;
}

// As at::parallel_for of libtorch 2.15 makes them with OpenMP (ATen/ParallelOpenMP.h).
std::vector<Part> expected(std::int64_t begin, std::int64_t end, std::int64_t grain_size, std::int64_t threads) {
  const std::int64_t size = end - begin;
  if (size <= 0) return {};
  if (size <= grain_size || size == 1 || threads == 1) return {{begin, end, 0}};
  const auto up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t part = up(size, grain_size > 0 ? std::min(threads, up(size, grain_size)) : threads);
  std::vector<Part> parts;
  for (std::int64_t first = begin; first < end; first += part)
    parts.push_back({first, std::min(end, first + part), static_cast<int>(parts.size())});
  return parts;
}

TEST_CASE("parallel_for makes the parts that at::parallel_for makes, whatever the size, grain size and threads") {
  for (const int threads : {1, 2, 3, 4, 7}) {
    const Threads of_libtorch(threads);
    for (const std::int64_t begin : {0, -5, 1000})
      for (const std::int64_t size : {-1, 0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 13, 64, 100, 1001})
        for (const std::int64_t grain_size : {0, 1, 2, 3, 5, 10, 64, 100, 5000}) {
          CAPTURE(threads);
          CAPTURE(begin);
          CAPTURE(size);
          CAPTURE(grain_size);
          CHECK(parts_of(begin, begin + size, grain_size) == expected(begin, begin + size, grain_size, threads));
        }
  }
}

TEST_CASE("parallel_for obeys the number of threads of the process and of the calling thread") {
  const Threads three(3);
  CHECK(parts_of(0, 100, 1).size() == 3);
  std::size_t here = 0, elsewhere = 0;
  std::thread([&] {
    use_threads_here(2);
    here = parts_of(0, 100, 1).size();
  }).join();
  std::thread([&] { elsewhere = parts_of(0, 100, 1).size(); }).join();
  CHECK(here == 2);
  CHECK(elsewhere == 3);
}

TEST_CASE("Each part of parallel_for has a thread of its own") {
  const Threads four(4);
  std::set<std::thread::id> seen;
  std::mutex mutex;
  parallel_for(0, 4, 1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  CHECK(seen.size() == 4);
  CHECK(seen.contains(std::this_thread::get_id()));
}

TEST_CASE("parallel_for and libtorch's operators share their threads") {
  const Threads three(3);
  const auto threads = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
  (void)at::mm(at::rand({300, 300}), at::rand({300, 300}));
  (void)at::rand({1000000}).exp();
  const auto of_libtorch = threads();
  CHECK(parts_of(0, 3, 1).size() == 3);
  CHECK(threads() == of_libtorch);
}

TEST_CASE("Within parallel_for another one is one call on the same thread") {
  const Threads two(2);
  std::atomic<int> calls = 0, wrong = 0;
  parallel_for(0, 2, 1, [&](std::int64_t, std::int64_t) {
    if (!at::in_parallel_region()) ++wrong;
    const int outer = at::get_thread_num();
    const auto thread = std::this_thread::get_id();
    parallel_for(0, 100, 1, [&](std::int64_t first, std::int64_t last) {
      ++calls;
      if (first != 0 || last != 100 || std::this_thread::get_id() != thread || at::get_thread_num() != 0) ++wrong;
    });
    if (at::get_thread_num() != outer) ++wrong;
  });
  CHECK(calls == 2);
  CHECK(wrong == 0);
  CHECK_FALSE(at::in_parallel_region());
  CHECK(at::get_thread_num() == 0);
}

TEST_CASE("An exception of any part leaves parallel_for once all parts have ended") {
  const Threads two(2);
  for (const std::int64_t bad : {0, 1}) {
    std::atomic<int> ended = 0;
    const auto run = [&] {
      parallel_for(0, 2, 1, [&](std::int64_t first, std::int64_t) {
        ++ended;
        if (first == bad) throw std::out_of_range("this part");
      });
    };
    CHECK_THROWS_AS(run(), std::out_of_range);
    CHECK(ended == 2);
    CHECK(at::get_thread_num() == 0);
  }
  CHECK_THROWS_WITH(parallel_for(0, 4, 1, [](std::int64_t, std::int64_t) { throw std::runtime_error("each part"); }),
                    "each part");
  CHECK_THROWS_WITH(parallel_for(0, 1, 1, [](std::int64_t, std::int64_t) { throw std::runtime_error("one call"); }),
                    "one call");
  CHECK(parts_of(0, 2, 1).size() == 2);
}

int sum_of_all = 0;
void add(std::int64_t first, std::int64_t last) { sum_of_all += static_cast<int>(last - first); }

TEST_CASE("parallel_for takes functions, and functions that cannot be copied") {
  const Threads one(1);
  parallel_for(0, 7, 1, add);
  CHECK(sum_of_all == 7);
  int sum = 0;
  auto count = [&sum, owned = std::make_unique<int>(2)](std::int64_t first, std::int64_t last) mutable {
    sum += ++*owned * static_cast<int>(last - first);
  };
  parallel_for(0, 5, 1, count);
  parallel_for(0, 5, 1, count);
  CHECK(sum == 35);
}

}  // namespace
}  // namespace composer::parallel_test
