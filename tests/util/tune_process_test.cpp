#include "composer/util/tune_process.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include <sys/wait.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::tune_process_test {
namespace {

// Takes back what a test did to the process.
struct Restored {
  Restored() = default;
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;
  ~Restored() {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), 10);
    empty_cpu_cache();
    at::globalContext().setFlushDenormal(false);
    at::set_num_threads(threads);
  }
  int threads = at::get_num_threads();
};

#if !defined(__SANITIZE_ADDRESS__)

TEST_CASE("the memory of a freed tensor is given to the next one of its size") {
  const Restored restored;
  tune_process();
  empty_cpu_cache();
  const std::size_t before = cpu_memory().cached;
  const void* first = at::empty({1000}).const_data_ptr();
  CHECK(cpu_memory().cached > before + 4000);
  const at::Tensor second = at::empty({1000});
  CHECK(second.const_data_ptr() == first);
  CHECK(cpu_memory().cached == before);
}

TEST_CASE("blocks that are in use at a time never overlap, whatever their sizes, and are aligned to 64 bytes") {
  const Restored restored;
  tune_process();
  std::mt19937 random(3);
  std::vector<at::Tensor> tensors(40);
  for (int i = 0; i < 4000; ++i) {
    const std::size_t which = random() % tensors.size();
    const std::int64_t bytes = std::int64_t{1} << (random() % 23);
    tensors[which] = at::full({bytes - static_cast<std::int64_t>(random() % static_cast<unsigned>(bytes))},
                              static_cast<std::int64_t>(which), at::kByte);
    CHECK(reinterpret_cast<std::uintptr_t>(tensors[which].const_data_ptr()) % 64 == 0);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].defined()) CHECK(tensors[i].eq(static_cast<std::int64_t>(i)).all().item<bool>());
}

TEST_CASE("a tensor made by one thread may be freed by another, and its memory is used again") {
  const Restored restored;
  tune_process();
  const std::size_t before = cpu_memory().used;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([] {
      at::Tensor kept;
      for (int i = 0; i < 2000; ++i) {
        at::Tensor made = at::full({i % 97 + 1}, i);
        std::thread([made = std::move(made)]() mutable { made.reset(); }).join();
        if (i > 50) break;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(cpu_memory().used == before);
}

TEST_CASE("what is freed beyond the limit, or emptied, goes back to the system") {
  const Restored restored;
  tune_process({.cache_limit = 1 << 20});
  { const at::Tensor large = at::empty({1 << 22}, at::kByte), small = at::empty({1 << 10}, at::kByte); }
  CHECK(cpu_memory().cached <= 1 << 20);
  CHECK(cpu_memory().cached > 0);
  empty_cpu_cache();
  CHECK(cpu_memory().cached == 0);
}

TEST_CASE("a large tensor takes whole pages of 4 KiB and no more, also if its size is a power of two") {
  const Restored restored;
  tune_process();
  for (const std::int64_t kibibytes : {68, 1024, 2048, 4096, 32768}) {
    CAPTURE(kibibytes);
    const std::size_t before = cpu_memory().used;
    const at::Tensor tensor = at::empty({kibibytes << 10}, at::kByte);
    CHECK(cpu_memory().used - before == static_cast<std::size_t>(kibibytes << 10));
  }
}

TEST_CASE("tensors of many sizes, one at a time, leave no more behind than an eighth more than the largest") {
  const Restored restored;
  tune_process();
  constexpr std::int64_t kMost = std::int64_t{80} << 20;
  for (int i = 0; i < 60; ++i) at::empty({kMost / 4 + (i * 37 % 60) * (kMost / 80)}, at::kByte);
  CHECK(cpu_memory().used + cpu_memory().cached < static_cast<std::size_t>(kMost) * 9 / 8 + (std::size_t{2} << 20));
}

TEST_CASE("a lower limit of a second call holds at once") {
  const Restored restored;
  tune_process({.cache_limit = std::size_t{1} << 40});
  { const at::Tensor large = at::empty({1 << 26}, at::kByte); }
  REQUIRE(cpu_memory().cached >= 1 << 26);
  tune_process({.cache_limit = 1 << 24});
  CHECK(cpu_memory().cached <= 1 << 24);
}

#if !defined(__SANITIZE_THREAD__)  // which does not run in a child of a process with threads

TEST_CASE("a child of fork() can make and free tensors, whatever other threads were doing") {
  const Restored restored;
  tune_process();
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (const std::int64_t bytes : {64, 1 << 20})
    threads.emplace_back([&stop, bytes] {
      while (!stop) at::empty({bytes}, at::kByte);
    });
  int hung = 0;
  for (int i = 0; i < 200 && hung == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);  // ends a child that hangs
      for (int k = 0; k < 10; ++k) at::empty({16}), at::empty({1 << 20}, at::kByte);
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    hung += status != 0 ? 1 : 0;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(hung == 0);
}

#endif

TEST_CASE("a tensor that no memory holds is an error of libtorch, and the process goes on") {
  const Restored restored;
  tune_process();
  CHECK_THROWS_AS(at::empty({std::int64_t{1} << 46}), c10::OutOfMemoryError);
  CHECK(at::ones({3}).sum().item<float>() == 3);
}

#endif

TEST_CASE("tune_process flushes denormal numbers, unless it shall not") {
  const Restored restored;
  const at::Tensor tiny = at::full({1}, 1e-30F);
  tune_process({.flush_denormals = false});
  CHECK(tiny.mul(1e-10F).item<float>() != 0);
  tune_process();
  CHECK(tiny.mul(1e-10F).item<float>() == 0);
}

TEST_CASE("tune_process sets the number of threads, says what it did, and refuses a negative number") {
  const Restored restored;
  const std::vector<std::string> said = tune_process({.threads = 1});
  CHECK(at::get_num_threads() == 1);
  CHECK(std::ranges::find(said, "threads: 1") != said.end());
  CHECK_THROWS_WITH_AS(tune_process({.threads = -1}), "tune_process: threads must be >= 0, got -1", ConfigError);
}

}  // namespace
}  // namespace composer::tune_process_test
