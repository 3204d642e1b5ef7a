#include "tests/replay/compare.h"

#include <cmath>

#include "tests/support/doctest.h"

namespace composer::replay::compare_test {
namespace {

TEST_CASE("The first difference of two results is found and named by its place") {
  const Json want = {{"a", {1, 2.5, "x"}}, {"b", {{"c", nullptr}}}};
  CHECK_FALSE(first_difference(want, want));
  Json got = want;
  got["a"][1] = 2.5 * (1 + 1e-13);
  CHECK_FALSE(first_difference(want, got));
  got["a"][1] = 2.5 * (1 + 1e-11);
  CHECK(first_difference(want, got)->starts_with("a[1]: 2.5 was recorded, got 2.5"));
  CHECK_FALSE(first_difference(want, got, {.relative = 1e-10}));
  got = want;
  got["b"]["c"] = 1;
  CHECK(*first_difference(want, got) == "b.c: null was recorded, got 1");
  got = want;
  got["a"].push_back(1);
  CHECK(*first_difference(want, got) == "a: 3 entries were recorded, got 4");
  got = want;
  got["d"] = 1;
  CHECK(*first_difference(want, got) == "d: nothing was recorded, got 1");
  CHECK(*first_difference(got, want) == "d: 1 was recorded, got nothing");
}

TEST_CASE("Integers are compared exactly, and numbers that are not finite by their names") {
  CHECK(first_difference(9007199254740993, 9007199254740992));
  CHECK_FALSE(first_difference(1, 1.0));
  CHECK_FALSE(first_difference("nan", number(std::nan(""))));
  CHECK_FALSE(first_difference("-inf", number(-INFINITY)));
  CHECK(first_difference("inf", number(-INFINITY)));
  CHECK(first_difference("nan", 0.0));
  CHECK(first_difference("x", 0.0));
}

Rule doubled(bool matches) {
  return {.name = "doubled",
          .applies_to = {},
          .composer_does = {},
          .we_do = {},
          .why = {},
          .matches = [matches](const Json&) { return matches; },
          .ours = [](Json& expected, const Json&) { expected = expected.get<int>() * 2; }};
}

TEST_CASE("A case is different as listed only if a rule matches it and we do what the rule says") {
  const Json c;
  CHECK(judge(c, 3, 3, {}).verdict == Verdict::EQUAL);
  CHECK(judge(c, 3, 3, {doubled(true)}).verdict == Verdict::EQUAL);
  CHECK(judge(c, 3, 6, {}).verdict == Verdict::WRONG);
  CHECK(judge(c, 3, 6, {doubled(false)}).verdict == Verdict::WRONG);
  CHECK(judge(c, 3, 7, {doubled(true)}).verdict == Verdict::WRONG);

  const Outcome different = judge(c, 3, 6, {doubled(true)});
  CHECK(different.verdict == Verdict::DIFFERENT);
  CHECK(different.rules == std::vector<std::string>{"doubled"});
  CHECK(judge(c, 3, 12, {doubled(true), doubled(true)}).verdict == Verdict::DIFFERENT);
}

}  // namespace
}  // namespace composer::replay::compare_test
