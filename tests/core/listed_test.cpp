#include "composer/core/listed.h"

#include <map>
#include <string>
#include <vector>

#include "tests/support/doctest.h"

namespace composer::listed_test {
namespace {

TEST_CASE("A list has its elements with commas, and says how many it leaves out") {
  const std::vector<std::string> names = {"a", "b", "c"};
  CHECK(listed(std::vector<std::string>{}).empty());
  CHECK(listed(names) == "a, b, c");
  CHECK(listed(names, {}, 3) == "a, b, c");
  CHECK(listed(names, {}, 1) == "a and 2 more");
  const std::map<std::string, int> counts = {{"a", 1}, {"b", 2}};
  CHECK(listed(counts, [](const auto& item) { return item.second; }) == "1, 2");
}

}  // namespace
}  // namespace composer::listed_test
