#include "composer/trainer/process_scope.h"

#include <optional>
#include <thread>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "composer/core/error.h"
#include "composer/util/threads_here.h"
#include "tests/support/doctest.h"

namespace composer::test::process_scope_test {
namespace {

bool deterministic() { return at::globalContext().deterministicAlgorithms(); }

const ProcessSettings kOn{.deterministic = true}, kOff{.deterministic = false}, kAny{};

TEST_CASE("The process is within a scope as its settings say, and afterwards as before") {
  for (const bool before : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(before, /*warn_only=*/before);
    {
      const ProcessScope on(kOn);
      CHECK(deterministic());
      CHECK_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
      {
        const ProcessScope off(kOff);
        CHECK_FALSE(deterministic());
        const ProcessScope any(kAny);
        CHECK(deterministic() == before);
      }
      CHECK(deterministic());
    }
    CHECK(deterministic() == before);
    CHECK(at::globalContext().deterministicAlgorithmsWarnOnly() == before);
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_CASE("What the program sets within a scope stays") {
  {
    const ProcessScope on(kOn);
    at::globalContext().setDeterministicAlgorithms(false, false);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
  CHECK(deterministic());
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_CASE("The number of threads is the scope's on its thread alone") {
  const auto of_new_thread = [] {
    int threads = 0;
    std::thread([&] { threads = at::get_num_threads(); }).join();
    return threads;
  };
  const int before = at::get_num_threads(), elsewhere = of_new_thread();
  use_threads_here(3);
  ProcessSettings settings{.threads = 2};
  {
    const ProcessScope scope(settings);
    CHECK(at::get_num_threads() == 2);
    CHECK(of_new_thread() == elsewhere);
  }
  CHECK(at::get_num_threads() == 3);
  settings = {.tunes_threads = true};
  {
    const ProcessScope scope(settings);
    use_threads_here(1);  // an error in the midst of trying
  }
  CHECK(at::get_num_threads() == 3);
  use_threads_here(before);
}

TEST_CASE("Scopes on two threads agree, or the second is an error that names the option") {
  const ProcessScope on(kOn);
  std::thread([] {
    CHECK_THROWS_WITH_AS(ProcessScope{kOff}, doctest::Contains("deterministic_mode: is false here"), ConfigError);
    CHECK_THROWS_AS(ProcessScope{kAny}, ConfigError);
    const ProcessSettings same{.deterministic = true};
    const ProcessScope scope(same);
    CHECK(deterministic());
  }).join();
  CHECK(deterministic());
}

TEST_CASE("A scope that ends first leaves the settings in force for that of another thread") {
  const ProcessSettings same{.deterministic = true};
  std::optional<ProcessScope> first;
  first.emplace(kOn);
  std::thread([&] {
    const ProcessScope second(same);
    first.reset();  // of the other thread, while this one runs
    CHECK(deterministic());
  }).join();
  CHECK_FALSE(deterministic());
}

TEST_CASE("A claim changes nothing, and who disagrees on another thread is told") {
  {
    const ProcessClaim claim(kOn);
    CHECK_FALSE(deterministic());
    const ProcessClaim same_thread(kOff);
    CHECK_NOTHROW(ProcessScope{kOff});
    std::thread([] {
      CHECK_THROWS_AS(ProcessClaim{kOff}, ConfigError);
      CHECK_THROWS_AS(ProcessScope{kAny}, ConfigError);
    }).join();
  }
  std::thread([] { CHECK_NOTHROW(ProcessClaim{kAny}); }).join();
}

TEST_CASE("A claim that is handed over is of the thread that has it now") {
  ProcessClaim claim(kOn);
  std::thread([&] {
    claim.move_here();
    CHECK_NOTHROW(ProcessClaim{kOff});
  }).join();
  CHECK_THROWS_AS(ProcessClaim{kOff}, ConfigError);
}

}  // namespace
}  // namespace composer::test::process_scope_test
