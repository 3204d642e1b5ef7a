#include "composer/util/json.h"

#include <string>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::json_test {
namespace {

using nlohmann::json;

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST_CASE("The depth of JSON counts arrays and objects, and nothing that is in a string") {
  CHECK(util::json_depth("") == 0);
  CHECK(util::json_depth("1") == 0);
  CHECK(util::json_depth(R"({"a": [1, {"b": []}], "c": [[]]})") == 4);
  CHECK(util::json_depth(R"(["[[[", "\"[[", "\\", [1]])") == 2);
  CHECK(util::json_depth("]]]}[") == 1);
  CHECK(util::json_depth("\"[") == 0);
  CHECK(util::json_depth("[\"\\") == 1);
}

TEST_CASE("JSON is parsed up to a depth of 100, and refused beyond") {
  CHECK(util::parse_json<json>(nested(100)).dump() == nested(100));
  CHECK_THROWS_WITH_AS(util::parse_json<json>(nested(101)), doctest::Contains("nested 101 deep"), Error);
  CHECK_THROWS_AS(util::parse_json<json>("[1"), json::exception);
  CHECK(util::parse_json_or_discard<json>("[1]") == json({1}));
  CHECK(util::parse_json_or_discard<json>("[1").is_discarded());
  CHECK(util::parse_json_or_discard<json>(nested(1'000'000)).is_discarded());
}

TEST_CASE("JSON is parsed up to a length of 8 MiB, and refused beyond") {
  const auto text = [](std::size_t length) { return '"' + std::string(length - 2, 'x') + '"'; };
  CHECK(util::parse_json<json>(text(util::kLongestJson)).is_string());
  CHECK_THROWS_WITH_AS(util::parse_json<json>(text(util::kLongestJson + 1)), doctest::Contains("8388608 are allowed"),
                       Error);
  CHECK(util::parse_json_or_discard<json>(text(util::kLongestJson + 1)).is_discarded());
}

}  // namespace
}  // namespace composer::json_test
