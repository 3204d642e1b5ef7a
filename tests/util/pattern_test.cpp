#include "composer/util/pattern.h"

#include <string>
#include <vector>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::pattern_test {
namespace {

using util::Pattern;

TEST_CASE("A pattern is sought anywhere, at the beginning, and in the whole of a text") {
  const Pattern pattern("option", "a(b+)(c)?");
  CHECK(pattern.is_in("xxabb"));
  CHECK_FALSE(pattern.is_in("xxa"));
  CHECK(pattern.begins("abx"));
  CHECK_FALSE(pattern.begins("xab"));
  CHECK_FALSE(pattern.groups_in("abx"));
  REQUIRE(pattern.groups_in("abbc"));
  CHECK(*pattern.groups_in("abbc") == std::vector<std::string>{"bb", "c"});
  CHECK(*pattern.groups_in("ab") == std::vector<std::string>{"b", ""});
  CHECK(pattern.replace("abb abc", "<$1>") == "<bb> <b>");
  CHECK_FALSE(pattern.is_in("AB"));
  CHECK(Pattern("option", "ab", Pattern::Case::IGNORED).is_in("xAB"));
}

TEST_CASE("A text that is no regular expression is refused by the name of its option") {
  CHECK_THROWS_WITH_AS(Pattern("metric_names", "(a"),
                       doctest::Contains("metric_names: \"(a\" is not a regular expression"), ConfigError);
}

TEST_CASE("A text that would exhaust the stack is refused") {
  const Pattern pattern("include_keys", "(a|b)*c");
  CHECK_FALSE(pattern.is_in(std::string(4'096, 'a')));
  const std::string text(4'097, 'a');
  CHECK_THROWS_WITH_AS(pattern.is_in(text), doctest::Contains("include_keys: a text of 4097 letters"), ConfigError);
  CHECK_THROWS_AS(pattern.begins(text), ConfigError);
  CHECK_THROWS_AS(pattern.groups_in(text), ConfigError);
  CHECK_THROWS_AS(pattern.replace(text, ""), ConfigError);
}

TEST_CASE("A copy of a pattern outlives the one that it was copied from") {
  std::vector<Pattern> kept;
  {
    const Pattern pattern("option", "a+");
    kept.push_back(pattern);
  }
  CHECK(kept[0].is_in("baa"));
}

}  // namespace
}  // namespace composer::pattern_test
