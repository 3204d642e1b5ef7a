#include "composer/checkpoint/retention.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/doctest.h"

namespace composer::saving::retention_test {
namespace {

TEST_CASE("The newest are kept, or the best and the newest in addition, and what was saved by hand is not counted") {
  const std::optional<Better> none, high = Better::HIGHER, low = Better::LOWER;
  struct Row {
    const char* why;
    std::vector<Saved> saved;
    std::int64_t limit;
    std::optional<Better> better;
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
      {"the newest stays in addition", {{"a", 3}, {"b", 1}, {"c", 0}}, 2, high, {}},
      {"one: the best, and the newest", {{"a", 1}, {"b", 3}, {"c", 2}}, 1, high, {"a"}},
      {"one: the newest is the best", {{"a", 1}, {"b", 2}, {"c", 3}}, 1, high, {"a", "b"}},
      {"of equals the oldest goes", {{"a", 1}, {"b", 1}, {"c", 1}}, 2, high, {"a"}},
      {"no value is worse than every value", {{"a", 0.5}, {"b", NAN}, {"c", 0.1}}, 2, high, {"b"}},
      {"no value is worse, if lower is better", {{"a", 0.5}, {"b", NAN}, {"c", 0.1}}, 2, low, {"b"}},
      {"no value is worse than infinity", {{"a", -HUGE_VAL}, {"b", NAN}, {"c", 1}, {"d", 0}}, 3, high, {"b"}},
      {"the newest stays without a value", {{"a", 0.5}, {"b", 0.1}, {"c", NAN}}, 1, high, {"b"}},
      {"no value at all: the newest", {{"a"}, {"b"}, {"c"}}, 1, high, {"a", "b"}},
      {"by hand: not counted", {{"a"}, {"mine", 0, true}, {"b"}}, 2, none, {}},
      {"by hand: stays", {{"mine", 0, true}, {"a"}, {"b"}, {"c"}}, 1, none, {"a", "b"}},
      {"by hand, and the newest: the newest that is counted stays", {{"a"}, {"b"}, {"mine", 0, true}}, 1, none, {"a"}},
      {"by hand: nothing is counted", {{"mine", 0, true}, {"yours", 0, true}}, 1, high, {}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.why);
    const Retention result = retain(row.saved, row.limit, row.better);
    CHECK(result.remove == row.removed);
    std::vector<Saved> kept = row.saved;
    for (const std::string& name : row.removed)
      std::erase_if(kept, [&](const Saved& saved) { return saved.name == name; });
    REQUIRE(result.keep.size() == kept.size());
    for (std::size_t i = 0; i < kept.size(); ++i) CHECK(result.keep[i].name == kept[i].name);
  }
}

TEST_CASE("The best is the one with the best value, of equal ones the newest, and none without a value") {
  const auto name = [](const std::vector<Saved>& saved, Better better) {
    const Saved* const best = best_of(saved, better);
    return best ? best->name : "none";
  };
  CHECK(name({}, Better::HIGHER) == "none");
  CHECK(name({{"a"}, {"b"}}, Better::HIGHER) == "none");
  CHECK(name({{"a", 1}, {"b", 3}, {"c", 2}, {"d"}}, Better::HIGHER) == "b");
  CHECK(name({{"a", 1}, {"b", 3}, {"c", 2}, {"d"}}, Better::LOWER) == "a");
  CHECK(name({{"a", 1}, {"b", 1}, {"c"}}, Better::LOWER) == "b");
  CHECK(name({{"a", -HUGE_VAL}, {"b"}}, Better::HIGHER) == "a");
  CHECK(name({{"a", 1}, {"mine", 2, true}}, Better::HIGHER) == "mine");
}

}  // namespace
}  // namespace composer::saving::retention_test
