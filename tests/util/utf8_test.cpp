#include "composer/util/utf8.h"

#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include "composer/util/json.h"
#include "tests/support/doctest.h"

namespace composer::utf8_test {
namespace {

std::string by_json(const std::string& text) {
  using Json = nlohmann::json;
  return util::parse_json<Json>(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

TEST_CASE("What is not UTF-8 is replaced as nlohmann's JSON does, in random texts") {
  std::mt19937 random(1);
  const std::string bytes("a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC2\xDF\xE0\xED\xEF\xF0\xF3\xF4\xF5\xFF\0", 20);
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 8, ' ');
    for (char& c : text) c = bytes[random() % bytes.size()];
    CAPTURE(i);
    const std::string valid = util::valid_utf8(text);
    REQUIRE(valid == by_json(text));
    REQUIRE(util::is_utf8(valid));
    REQUIRE(util::is_utf8(text) == (valid == text));
  }
}

}  // namespace
}  // namespace composer::utf8_test
