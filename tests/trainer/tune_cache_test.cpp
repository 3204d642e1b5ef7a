#include "composer/trainer/tune_cache.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/folder.h"

namespace composer::test {
namespace {

TEST_CASE("Threads that put results in one file at the same time lose none") {
  const Folder folder;
  const std::string file = folder / "cache/tune.json";
  const auto put_some = [&](int writer) {
    for (int i = 0; i < 20; ++i) TuneCache(file).put(std::to_string(writer) + ' ' + std::to_string(i), {.threads = i});
  };
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 3; ++writer) threads.emplace_back(put_some, writer);
  for (std::thread& thread : threads) thread.join();
  for (int writer = 0; writer < 3; ++writer)
    for (int i = 0; i < 20; ++i) {
      const auto found = TuneCache(file).find(std::to_string(writer) + ' ' + std::to_string(i));
      REQUIRE(found);
      CHECK(found->threads == i);
    }
}

TEST_CASE("A number of threads that is none is not taken for another one") {
  const Folder folder;
  const std::string file = folder / "tune.json";
  for (const char* threads : {"4294967297", "-4294967294", "1e300", "18446744073709551615", "1.5"}) {
    CAPTURE(threads);
    std::ofstream(file) << R"({"key": {"channels_last": false, "autocast": false, "threads": )" << threads << "}}";
    CHECK_FALSE(TuneCache(file).find("key"));
  }
  std::ofstream(file) << R"({"key": {"channels_last": false, "autocast": false, "threads": 3}})";
  CHECK(TuneCache(file).find("key"));
}

TEST_CASE("A tune_cache that is a device is neither replaced nor written") {
  TuneCache("/dev/null").put("key", {.threads = 2});
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK_FALSE(TuneCache("/dev/null").find("key"));
}

}  // namespace
}  // namespace composer::test
