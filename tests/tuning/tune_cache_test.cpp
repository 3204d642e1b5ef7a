#include "composer/tuning/tune_cache.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "composer/util/json.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"
#include "tests/support/warnings.h"

namespace composer::test::tune_cache_test {
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

TEST_CASE("A cache nested too deep is begun again") {
  const Folder folder;
  const std::string file = folder / "tune.json";
  std::ofstream(file) << R"({"a": )" << std::string(200'000, '[') << std::string(200'000, ']') << '}';
  CHECK_FALSE(TuneCache(file).find("key"));
  TuneCache(file).put("key", {.threads = 3});
  CHECK(TuneCache(file).find("key"));
}

TEST_CASE("A cache that is damaged anywhere, or too long, gives results or none, and takes new ones") {
  const Folder folder;
  const std::string file = folder / "tune.json";
  TuneCache(file).put("a", {.threads = 2, .products = "2x3x4 RR=1,others=0"});
  const std::string whole = text_of(file);
  std::mt19937 random(7);
  for (int i = 0; i < 1'000; ++i) {
    CAPTURE(i);
    std::string damaged = whole;
    for (int k = 0; k < 3; ++k) damaged[1 + random() % (damaged.size() - 1)] = static_cast<char>(random());
    if (i % 3 == 0) damaged.resize(1 + random() % damaged.size());
    write_text(file, damaged);
    CHECK_NOTHROW(TuneCache(file).find("a"));
    CHECK_NOTHROW(TuneCache(file).put("b", {.threads = 3}));
    REQUIRE(TuneCache(file).find("b"));
    CHECK(TuneCache(file).find("b")->threads == 3);
  }
  write_text(file, '{' + std::string(util::kLongestJson, ' ') + '}');
  TuneCache(file).put("b", {.threads = 3});
  CHECK(TuneCache(file).find("b"));
}

TEST_CASE("A result that is forgotten is not found again, and others are") {
  const Folder folder;
  const TuneCache cache(folder / "tune.json");
  cache.put("a", {.threads = 2, .seconds = 0.25});
  cache.put("b", {.threads = 3});
  CHECK(cache.find("a")->seconds == 0.25);
  CHECK_FALSE(cache.find("b")->seconds);
  cache.forget("a");
  cache.forget("c");  // is not there
  CHECK_FALSE(cache.find("a"));
  CHECK(cache.find("b")->threads == 3);
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

TEST_CASE("A tune_cache that is a folder is empty, and says so when something is put in it") {
  const Folder folder;
  const TuneCache cache(folder.path());
  CHECK_FALSE(cache.find("a"));
  const Warnings warnings;
  cache.put("a", {.threads = 2});
  CHECK(warnings.say("is a folder"));
}

TEST_CASE("A tune_cache that is somebody else's file is not replaced, and a warning says so") {
  const Folder folder;
  std::ofstream(folder / "notes.txt") << "buy milk";
  const Warnings warnings;
  TuneCache(folder / "notes.txt").put("a", {.threads = 2});
  CHECK(warnings.say("is left as it is"));
  std::string word;
  std::ifstream(folder / "notes.txt") >> word;
  CHECK(word == "buy");
}

TEST_CASE("A result whose products cannot be read has none") {
  const Folder folder;
  const TuneCache cache(folder / "tune.json");
  cache.put("a", {.threads = 2, .products = "2x3x4 RR=1,others=0"});
  CHECK(cache.find("a")->products == "2x3x4 RR=1,others=0");
  cache.put("a", {.threads = 2, .products = "2x3x4 RQ=1,others=0"});
  CHECK_FALSE(cache.find("a")->products);
}

TEST_CASE("A tune_cache that is a device is neither replaced nor written") {
  TuneCache("/dev/null").put("key", {.threads = 2});
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK_FALSE(TuneCache("/dev/null").find("key"));
}

}  // namespace
}  // namespace composer::test::tune_cache_test
