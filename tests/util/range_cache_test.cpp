#include "composer/util/range_cache.h"

#include <map>
#include <random>

#include "tests/support/doctest.h"

namespace composer::util::range_cache_test {
namespace {

TEST_CASE("A range is cut from the shortest cached range that is long enough, and joins its neighbours again") {
  RangeCache cache(1000);
  CHECK(cache.take(100) == 0);
  CHECK(cache.take(50) == 100);
  CHECK(cache.take(10) == 150);
  cache.give(0);
  cache.give(150);
  CHECK(cache.cached() == 110);
  CHECK(cache.take(8) == 150);  // not from the 100
  CHECK(cache.take(100) == 0);  // all of it
  cache.give(0);
  cache.give(100);
  cache.give(150);
  CHECK(cache.cached() == 160);
  CHECK(cache.take(160) == 0);  // of four that were freed in any order
  CHECK(cache.used() == 160);
}

TEST_CASE("A cached range that is too short is grown by fresh memory behind it before all is taken fresh") {
  RangeCache cache(1000);
  REQUIRE(cache.take(100) == 0);
  cache.give(0);
  CHECK(cache.take(150) == 0);
  CHECK(cache.cached() == 0);
  CHECK(cache.take(850) == 150);
  CHECK_FALSE(cache.take(1).has_value());
}

TEST_CASE("drop takes out what was freed first, in whole grains, and no more than it must") {
  RangeCache cache(4096);
  for (int i = 0; i < 4; ++i) REQUIRE(cache.take(512) == static_cast<std::size_t>(512 * i));
  cache.give(1024);
  cache.give(0);
  struct Row {
    std::size_t keep, offset, bytes, left;
  };
  for (const Row& row : {Row{1024, 0, 0, 1024}, Row{1000, 1472, 64, 960}, Row{960, 0, 0, 960}}) {
    CAPTURE(row.keep);
    const auto dropped = cache.drop(row.keep, 64);
    CHECK(cache.cached() == row.left);
    REQUIRE(dropped.size() == (row.bytes > 0 ? 1 : 0));
    if (row.bytes > 0) CHECK((dropped[0].offset == row.offset && dropped[0].bytes == row.bytes));
    cache.released(dropped);
  }
  const auto rest = cache.drop(0, 64);
  CHECK(rest.size() == 2);
  CHECK(cache.cached() == 0);
  CHECK(cache.take(512) == 2048);  // neither what is in use nor what is being released
  cache.released(rest);
  CHECK(cache.take(512) == 0);
}

TEST_CASE("Ranges in use never overlap, and all comes back in one piece") {
  constexpr std::size_t kAll = 1 << 16;
  RangeCache cache(kAll);
  std::mt19937 random(5);
  std::map<std::size_t, std::size_t> used;  // bytes by offset
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0 || used.size() > 40) {
      if (used.empty()) continue;
      const auto it = std::next(used.begin(), static_cast<std::ptrdiff_t>(random() % used.size()));
      REQUIRE(cache.give(it->first) == it->second);
      used.erase(it);
    } else if (const std::size_t bytes = 1 + random() % 2000; const auto offset = cache.take(bytes)) {
      const auto [it, is_new] = used.emplace(*offset, bytes);
      REQUIRE(is_new);
      REQUIRE(*offset + bytes <= kAll);
      if (it != used.begin()) REQUIRE(std::prev(it)->first + std::prev(it)->second <= *offset);
      if (std::next(it) != used.end()) REQUIRE(*offset + bytes <= std::next(it)->first);
    }
    if (i % 17 == 0) cache.released(cache.drop(random() % 20'000, 64));
  }
  for (const auto& [offset, bytes] : used) cache.give(offset);
  CHECK(cache.used() == 0);
  cache.released(cache.drop(0, 1));
  CHECK(cache.take(kAll) == 0);
}

}  // namespace
}  // namespace composer::util::range_cache_test
