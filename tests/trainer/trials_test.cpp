#include "composer/trainer/trials.h"

#include <algorithm>
#include <vector>

#include "composer/util/random.h"
#include "tests/support/doctest.h"

namespace composer::trials_test {
namespace {

TEST_CASE("The other way is faster only if most pairs say so, by more than they differ among themselves") {
  struct Row {
    const char* what;
    std::vector<double> now, other;
    bool faster;
  };
  const std::vector<Row> rows = {
      {"a tenth faster each time", {10, 10, 10, 10, 10}, {9, 9, 9, 9, 9}, true},
      {"2 % are not worth a change", {10, 10, 10, 10, 10}, {9.8, 9.8, 9.8, 9.8, 9.8}, false},
      {"slower", {10, 10, 10}, {11, 11, 11}, false},
      {"one lucky trial of the other", {10, 10, 10, 10, 10}, {5, 10, 10, 10, 10}, false},
      {"one unlucky trial of the other", {10, 10, 10, 10, 10}, {9, 9, 50, 9, 9}, true},
      {"the machine became slower in the middle", {10, 10, 20, 20, 20}, {9, 9, 18, 18, 18}, true},
      {"faster in the median, slower as often as not", {10, 10, 10, 10, 10}, {9, 9, 9, 12, 12}, false},
      {"the fewest pairs", {10, 10, 10}, {9, 9, 9.5}, true},
      {"the fewest pairs, which do not agree", {10, 10, 10}, {9, 9, 10.5}, false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    CHECK(other_is_faster({.now = row.now, .other = row.other}) == row.faster);
  }
}

// Times of one way, each up to a half longer than the shortest: the shortest of five differ by 3 % quite often.
TEST_CASE("A way that varies by a half is found faster than itself in fewer than one of fifty decisions") {
  RandomStream random(7);
  int changes = 0, changes_by_shortest = 0;
  constexpr int kDecisions = 2000;
  const auto times = [&](int trials) {
    std::vector<double> made;
    for (int i = 0; i < trials; ++i) {
      const double delay = static_cast<double>(random.below(1000)) / 1000;
      made.push_back(1 + 0.5 * delay);
    }
    return made;
  };
  for (int i = 0; i < kDecisions; ++i) {
    const Trials trials{.now = times(25), .other = times(25)};
    changes += other_is_faster(trials) ? 1 : 0;
    const auto shortest_of_5 = [](const std::vector<double>& all) {
      return *std::min_element(all.begin(), all.begin() + 5);
    };
    changes_by_shortest += shortest_of_5(trials.other) < 0.97 * shortest_of_5(trials.now) ? 1 : 0;
  }
  CHECK(changes < kDecisions / 50);
  CHECK(changes_by_shortest > kDecisions / 5);  // so the times above do tell the two rules apart
}

TEST_CASE("The median of a few times is one of them") {
  CHECK(median({3}) == 3);
  CHECK(median({5, 1, 3}) == 3);
  CHECK(median({9, 1, 5, 3}) == 5);
}

}  // namespace
}  // namespace composer::trials_test
