#include "composer/core/option.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/by_name.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"

namespace composer::test::option_test {
namespace {

struct Parts {
  std::vector<int> all;
};

struct Sizes {
  std::int64_t count = 1;
  std::optional<std::int64_t> most = {};
  Seconds pause{1};
  Interval interval = "1ep";
  Parts parts = {};
  bool fast = false;
};

struct Named {
  [[no_unique_address]] ByName by_name = {};
  std::vector<std::string> tags = {};
};

template <class... T>
constexpr bool kAreAll = detail::HasFields<Sizes, T...>;

static_assert(kAreAll<std::int64_t, std::optional<std::int64_t>, Seconds, Interval, Parts, bool>);
static_assert(!kAreAll<std::int64_t, std::optional<std::int64_t>, Seconds, Interval, Parts>);
static_assert(!kAreAll<std::optional<std::int64_t>, Seconds, Interval, Parts, bool>);
static_assert(!kAreAll<std::int64_t, std::optional<std::int64_t>, Seconds, Parts, bool>);
static_assert(!kAreAll<std::int64_t, std::optional<std::int64_t>, Seconds>);
static_assert(!kAreAll<std::int64_t, std::optional<std::int64_t>, Interval, Seconds, Parts, bool>);
static_assert(!kAreAll<std::int64_t, std::optional<std::int64_t>, Seconds, Interval, Parts, bool, bool>);
enum class Types : std::uint8_t { FP32, BF16, E4M3 };
enum class None : std::uint8_t {};
static_assert(detail::count_enumerators<Types>() == 3);
static_assert(detail::count_enumerators<None>() == 0);
static_assert(detail::count_enumerators<Compared>() == 6);
static_assert(detail::HasFields<Named, std::vector<std::string>>);

// Of a text alone, as some fields are.
struct Text {
  Text(const char* text) : begin(*text) {}
  char begin;
};
struct EndsInText {
  double size = 1;
  Text text = "all";
};
struct TextBetween {
  double size = 1;
  Text text = "all";
  double rest = 1;
};
static_assert(detail::HasFields<EndsInText, double, Text>);
static_assert(!detail::HasFields<EndsInText, double>);
static_assert(detail::HasFields<TextBetween, double, Text, double>);
static_assert(!detail::HasFields<TextBetween, double>);
static_assert(!detail::HasFields<TextBetween, double, Text>);

struct Twins {
  double a = 1, b = 2;
};

std::vector<Option<Sizes>> described() {
  using O = Sizes;
  return all_options(option("count", &O::count).at_least(1, "MiB"),
                     option("most", &O::most).at_least(0).or_else(-1, "all"),
                     option("pause", &O::pause).above(0, "seconds"), option("interval", &O::interval),
                     part("parts", &O::parts, "parts").unlogged("are no number"),
                     option("fast", &O::fast).must("be false before noon", [](bool fast) { return !fast; }));
}

TEST_CASE("A field that is described twice, or in the place of another one, is an error") {
  using O = Twins;
  CHECK(all_options(option("a", &O::a), option("b", &O::b)).size() == 2);
  CHECK_THROWS_WITH_AS(all_options(option("a", &O::a), option("b", &O::a)),
                       "option b: its line describes another field", Error);
  CHECK_THROWS_AS(all_options(option("a", &O::b), option("b", &O::a)), Error);
}

TEST_CASE("A value outside of its range is a ConfigError with the option, the rule and the value") {
  const auto error = [](const Sizes& sizes) { return error_of([&] { check(sizes, described()); }); };
  CHECK(error({}) == "no error");
  CHECK(error({.count = 0}) == "count: must be >= 1 MiB, got 0");
  CHECK(error({.most = -1}) == "no error");
  CHECK(error({.most = 0}) == "no error");
  CHECK(error({.most = -2}) == "most: must be >= 0, or -1 for all, got -2");
  CHECK(error({.pause = Seconds(0)}) == "pause: must be > 0 seconds, got 0");
  CHECK(error({.pause = Seconds(NAN)}) == "pause: must be > 0 seconds, got nan");
  CHECK(error({.fast = true}) == "fast: must be false before noon, got true");
  CHECK(error_of([] { check(Sizes{.count = 0}, described(), "Sizes ", ""); }) == "Sizes count must be >= 1 MiB, got 0");
}

struct Ranges {
  double share = 0.5;
  double rate = 0;
  double alpha = 1;
  std::string key = "input";
  Time patience = "1ep";
  Seconds wait{1};
  std::int64_t most = 1;
  Parts parts = {};
};

std::vector<Option<Ranges>> ranges() {
  using O = Ranges;
  return all_options(
      option("share", &O::share).from_to(0, 1), option("rate", &O::rate).from_0_below_1().worded("be a share below 1"),
      option("alpha", &O::alpha).above(0).finite(), option("key", &O::key).not_empty(),
      option("patience", &O::patience).in({TimeUnit::EPOCH, TimeUnit::BATCH}).at_least(1),
      option("wait", &O::wait).from_to(0.001, 86'400, "seconds"), option("most", &O::most).from_to(1, 1'000'000),
      part("parts", &O::parts, "parts").must("be many", [](const Parts& p) { return p.all.empty(); }));
}

TEST_CASE("A constructor's error names its class, the option, the first rule that does not hold, and the value") {
  const auto error = [](const Ranges& given) { return error_of([&] { checked("X", given, ranges()); }); };
  CHECK(error({}) == "no error");
  CHECK(error({.share = 1.5}) == "X: share must be from 0 to 1, got 1.5");
  CHECK(error({.share = NAN}) == "X: share must be from 0 to 1, got nan");
  CHECK(error({.rate = 1}) == "X: rate must be a share below 1, got 1");
  CHECK(error({.rate = -0.1}) == "X: rate must be a share below 1, got -0.1");
  CHECK(error({.alpha = INFINITY}) == "X: alpha must be > 0, got inf");
  CHECK(error({.key = ""}) == "X: key must not be empty");
  CHECK(error({.patience = "3sp"}) == "X: patience must be in ep or ba, got 3sp");
  CHECK(error({.patience = "0ba"}) == "X: patience must be >= 1, got 0ba");
  CHECK(error({.wait = Seconds(1e5)}) == "X: wait must be from 0.001 to 86400 seconds, got 100000");
  CHECK(error({.most = 0}) == "X: most must be from 1 to 1000000, got 0");
  CHECK(error({.parts = {{1}}}) == "X: parts must be many");
  CHECK(describe(Ranges{}, ranges()).size() == 7);
}

TEST_CASE("Each text that a range says it refuses, it refuses") {
  for (const Option<Ranges>& option : ranges()) {
    CHECK(option.refused.empty() == !option.read);
    for (const std::string& text : option.refused) {
      CAPTURE(text);
      Ranges given;
      option.read(given, text);
      CHECK(error_of([&] { check(given, ranges()); }).starts_with(option.name));
    }
  }
  CHECK(described()[1].refused.empty());  // -1 is allowed
}

TEST_CASE("What an option says of itself is what is not as usual") {
  const std::vector<Option<Sizes>> list = described();
  CHECK(list[0].rules.unit == "MiB");
  CHECK(list[0].rules.compared == Compared::AT_FIT);
  CHECK(list[0].is_logged());
  CHECK_FALSE(list[4].is_logged());
  StateDict told;
  for (const Option<Sizes>& option : list)
    if (option.is_logged()) option.tell_to(told, {.count = 3}, {});
  CHECK(text_of(*told.find("count")) == "3");
  CHECK(text_of(Sizes{.count = 3}, list) == "count=3, most=, pause=1, interval=1ep, fast=false");
  CHECK(text_of(*told.find("most")).empty());
  CHECK_FALSE(told.find("parts"));
}

TEST_CASE("Texts become lists, switches and numbers that may be unset") {
  std::vector<std::string> list = {"before"};
  detail::read_text("a,,b", list);
  CHECK(list == std::vector<std::string>{"a", "", "b"});
  CHECK(detail::to_text(list) == "a,,b");
  detail::read_text("", list);
  CHECK(list.empty());
  std::map<std::string, std::string> map = {{"before", ""}};
  detail::read_text("b=2,a=1=1,c=", map);
  CHECK(map == std::map<std::string, std::string>{{"a", "1=1"}, {"b", "2"}, {"c", ""}});
  CHECK(detail::to_text(map) == "a=1=1,b=2,c=");
  CHECK_THROWS_AS(detail::read_text("a", map), ConfigError);
  CHECK_THROWS_AS(detail::read_text("=a", map), ConfigError);
  std::optional<bool> yes;
  detail::read_text("true", yes);
  CHECK(yes == true);
  detail::read_text("", yes);
  CHECK(yes == std::nullopt);
  std::optional<std::uint64_t> seed;
  detail::read_text("18446744073709551615", seed);
  CHECK(detail::to_text(seed) == "18446744073709551615");
  CHECK_THROWS_AS(detail::read_text("-1", seed), ConfigError);
}

}  // namespace
}  // namespace composer::test::option_test
