#include "composer/checkpoint/retention.h"

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/doctest.h"

namespace composer::saving::retention_test {
namespace {

TEST_CASE(
    "The newest and the best are kept, NaN is worse than every number, and what was saved by hand is not counted") {
  const std::optional<Best> none, high = Best{.metric = "m"}, low = Best{.metric = "m", .better = Better::LOWER};
  struct Row {
    const char* why;
    std::vector<Saved> saved;
    std::int64_t limit;
    std::optional<Best> best;
    std::vector<std::string> removed;
  };
  const std::vector<Row> rows = {
      {"nothing", {}, 2, none, {}},
      {"all", {{"a"}, {"b"}, {"c"}}, -1, none, {}},
      {"as many as allowed", {{"a"}, {"b"}}, 2, none, {}},
      {"the oldest goes", {{"a"}, {"b"}, {"c"}}, 2, none, {"a"}},
      {"the two oldest go", {{"a"}, {"b"}, {"c"}}, 1, none, {"a", "b"}},
      {"the worst goes", {{"a", 3}, {"b", 1}, {"c", 2}}, 2, high, {"b"}},
      {"the worst goes, if lower is better", {{"a", 3}, {"b", 1}, {"c", 2}}, 2, low, {"a"}},
      {"the newest stays though it is the worst", {{"a", 3}, {"b", 1}, {"c", 0}}, 2, high, {"b"}},
      {"of equals the oldest goes", {{"a", 1}, {"b", 1}, {"c", 1}}, 2, high, {"a"}},
      {"NaN goes first", {{"a", 0.5}, {"b", NAN}, {"c", 0.1}}, 2, high, {"b"}},
      {"NaN goes first, if lower is better", {{"a", 0.5}, {"b", NAN}, {"c", 0.1}}, 2, low, {"b"}},
      {"the newest stays though it is NaN", {{"a", 0.5}, {"b", 0.1}, {"c", NAN}}, 2, high, {"b"}},
      {"by hand: not counted", {{"a"}, {"mine", 0, true}, {"b"}}, 2, none, {}},
      {"by hand: stays", {{"mine", 0, true}, {"a"}, {"b"}, {"c"}}, 1, none, {"a", "b"}},
      {"by hand, and the newest: the newest that is counted stays", {{"a"}, {"b"}, {"mine", 0, true}}, 1, none, {"a"}},
      {"by hand: nothing is counted", {{"mine", 0, true}, {"yours", 0, true}}, 1, high, {}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.why);
    const Retention result = retain(row.saved, row.limit, row.best);
    CHECK(result.remove == row.removed);
    std::vector<Saved> kept = row.saved;
    for (const std::string& name : row.removed)
      std::erase_if(kept, [&](const Saved& saved) { return saved.name == name; });
    REQUIRE(result.keep.size() == kept.size());
    for (std::size_t i = 0; i < kept.size(); ++i) CHECK(result.keep[i].name == kept[i].name);
  }
}

}  // namespace
}  // namespace composer::saving::retention_test
