#include "composer/core/time.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <type_traits>

#include "tests/support/doctest.h"

namespace composer::time_test {
namespace {

using Limits = std::numeric_limits<std::int64_t>;

Time share(double value) { return Time::from(value, TimeUnit::DURATION); }

TEST_CASE("Time reads what Composer reads, and lengths of a day and more") {
  struct Row {
    const char* text;
    Time time;
  };
  const Row rows[] = {
      {"5ep", "5ep"},
      {"5EP", "5ep"},
      {" 5ep", "5ep"},
      {"5 ep", "5ep"},
      {"+5ba", "5ba"},
      {"1_000ba", "1000ba"},
      {"1e3sp", "1000sp"},
      {"1E+3sp", "1000sp"},
      {"100e-2sp", "1sp"},
      {"1.0ep", "1ep"},
      {"1.ep", "1ep"},
      {"030.0sp", "30sp"},
      {"2iter", "2iter"},
      {"3e4tok", "30000tok"},
      {"-3ba", "-3ba"},
      {"5ep\n", "5ep"},
      {"-0.5dur", "-0.5dur"},
      {".25dur", "0.25dur"},
      {"2dur", "2dur"},
      {"0dur", "0dur"},
      {"infdur", "infdur"},
      {"-Infinitydur", "-infdur"},
      {"1h20m40s", "4840sec"},
      {"1h", "3600sec"},
      {"1h30s", "3630sec"},
      {"23h59m59s", "86399sec"},
      {"5s", "5sec"},
      {"5sec", "5sec"},
      {"24h", "86400sec"},
      {"90m", "5400sec"},
      {"60s", "60sec"},
      {"1h90m", "9000sec"},
      {"9007199254740993tok", Time((std::int64_t{1} << 53) + 1, TimeUnit::TOKEN)},
      {"9223372036854775807ba", Time(Limits::max(), TimeUnit::BATCH)},
      {"-9223372036854775808ba", Time(Limits::min(), TimeUnit::BATCH)},
      {"0e999999999999999999999ba", "0ba"},
      {"0.000000000000000000000001e24ba", "1ba"},
      {"0.1000000000000000055511151231257827dur", "0.1dur"},
  };
  for (const auto& [text, time] : rows) {
    CAPTURE(text);
    const Time parsed = Time::parse(text);
    CHECK(parsed.unit() == time.unit());
    CHECK(parsed == time);
  }
  CHECK(std::isnan(Time::parse("nandur").as_double()));
}

TEST_CASE("Time tells a wrong text, a wrong kind of number and a number too large apart") {
  for (const char* text : {"",
                           "5",
                           "ep",
                           " ep",
                           "epep",
                           "5epoch",
                           "5batch",
                           "5tokens",
                           "5it",
                           "1min",
                           "1d",
                           "1ep2ba",
                           "0x10ba",
                           "1,000ba",
                           "5ep ",
                           "5\nep",
                           "5ep\n\n",
                           "0.5h",
                           "1H",
                           "1h 30m",
                           "1m1h",
                           "1h30",
                           "1h1h",
                           "h",
                           "_1ba",
                           "1_ba",
                           "1__0ba",
                           "1._5dur",
                           "1_.5dur",
                           ".dur",
                           "e5ba",
                           "1eep",
                           "1e+ba",
                           "--1ba",
                           "nanep",
                           "1e5_ba",
                           "\xd9\xa1"
                           "ba"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(Time::parse(text), TimeSyntaxError);
  }
  for (const char* text :
       {"1.5ep", "0.1sec", "3e-1ba", "1e-99999999999999999999ba", "1.000000000000000000000000001ba"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(Time::parse(text), TimeTypeError);
  }
  for (const char* text :
       {"infep", "-infba", "1e400ba", "1e99999999999999999999ba", "9223372036854775808ba", "-9223372036854775809ba",
        "123456789012345678901234567890ba", "99999999999999999999h", "9223372036854775807h"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(Time::parse(text), TimeRangeError);
  }
  CHECK_THROWS_AS(Time::from(5.0, TimeUnit::BATCH), TimeTypeError);
  CHECK_THROWS_WITH_AS(Time::parse("5epp"), doctest::Contains("\"5epp\" is not a time"), ConfigError);
}

TEST_CASE("A time is written in its shortest form, which reads back to the same time") {
  struct Row {
    const char* text;
    const char* written;
  };
  for (const auto& [text, written] : {Row{"1e3ba", "1000ba"},
                                      {"1dur", "1.0dur"},
                                      {"1e-2dur", "0.01dur"},
                                      {"0.0001dur", "0.0001dur"},
                                      {"0.00001dur", "1e-05dur"},
                                      {"1e15dur", "1000000000000000.0dur"},
                                      {"1e16dur", "1e+16dur"},
                                      {"1e400dur", "infdur"},
                                      {"-1e-400dur", "-0.0dur"},
                                      {"1h", "3600sec"}}) {
    CHECK(to_string(Time::parse(text)) == written);
  }

  std::mt19937_64 random(17);
  for (int i = 0; i < 20'000; ++i) {
    const auto unit = static_cast<TimeUnit>(random() % 7);
    const auto bits = static_cast<std::int64_t>(random());
    const double value = std::bit_cast<double>(bits);
    if (unit == TimeUnit::DURATION && std::isnan(value)) continue;
    const Time time = unit == TimeUnit::DURATION ? share(value) : Time(bits >> (random() % 64), unit);
    CAPTURE(to_string(time));
    CHECK(Time::parse(to_string(time)) == time);
  }
}

TEST_CASE("A literal is the same time as its text at run time") {
  constexpr Time kThird = "0.3333333333333333dur";
  CHECK(kThird.as_double() == 1.0 / 3);
  constexpr Time kTiny = "1e-22dur";
  CHECK(kTiny.as_double() == 1e-22);
  static_assert(Time("1h20m40s").count() == 4840);
  static_assert(Time("9007199254740993tok").count() == 9007199254740993);
  static_assert(sizeof(Time) == 16 && std::is_trivially_copyable_v<Time>);

  struct Options {
    OptionalTime max_duration;
    Time patience = "1ep";
  };
  const Options given{.max_duration = "10ep", .patience = "3ba"};
  CHECK(given.max_duration == Time("10ep"));
  CHECK(given.patience == Time("3ba"));
  CHECK_FALSE(Options().max_duration);
  CHECK(Options{.max_duration = Time::parse("2ep")}.max_duration->count() == 2);
}

TEST_CASE("Units are read by suffix and by name in any case") {
  CHECK(parse_time_unit("ep") == TimeUnit::EPOCH);
  CHECK(parse_time_unit("EPOCH") == TimeUnit::EPOCH);
  CHECK(parse_time_unit("Dur") == TimeUnit::DURATION);
  for (std::size_t i = 0; i < kTimeUnitNames.size(); ++i) {
    CHECK(parse_time_unit(kTimeUnitNames[i].suffix) == static_cast<TimeUnit>(i));
    CHECK(parse_time_unit(kTimeUnitNames[i].name) == static_cast<TimeUnit>(i));
    CHECK(to_string(static_cast<TimeUnit>(i)) == kTimeUnitNames[i].suffix);
  }
  for (const char* text : {"", "epochs", "seconds", " ep"}) CHECK_THROWS_AS(parse_time_unit(text), TimeSyntaxError);
}

TEST_CASE("Times of one unit add, compare and divide; products are cut off towards zero") {
  const Time t = "7ba", d = "0.5dur";
  CHECK(t + "3ba" == Time("10ba"));
  CHECK(t - 9 == Time("-2ba"));
  CHECK(9 - t == Time("2ba"));
  CHECK(2 + t == 9);
  CHECK(-t == -7);
  CHECK(+t == 7);
  CHECK(t * 2 == 14);
  CHECK(2 * t == 14);
  CHECK(t * 0.5 == 3);
  CHECK(-t * 0.5 == -3);
  CHECK(t * d == 3);
  CHECK(d * t == 3);
  CHECK((d * d).as_double() == 0.25);
  CHECK((d * 3).as_double() == 1.5);
  CHECK(Time("100ba") * "0.29dur" == 28);
  CHECK(Time("100ba") * "0.57dur" == 56);
  CHECK(t / 2 == 3);
  CHECK(-t / 2 == -3);
  CHECK(t / 0.5 == 14);
  CHECK(t / "2ba" == share(3.5));
  CHECK(d / 4 == share(0.125));
  CHECK(t % "3ba" == 1);
  CHECK(-t % 3 == 2);
  CHECK(t % -3 == -2);
  CHECK(share(0.75) % 0.5 == share(0.25));
  CHECK(share(-0.25) % 1.0 == share(0.75));
  CHECK(t < 8);
  CHECK(8 > t);
  CHECK(t >= Time("7ba"));
  CHECK(t != 6);
  CHECK(d < 0.75);
  CHECK(d != 1);
  CHECK(Time((std::int64_t{1} << 53) + 1, TimeUnit::TOKEN) != Time(std::int64_t{1} << 53, TimeUnit::TOKEN));
  CHECK(Time(Limits::max(), TimeUnit::TOKEN) / 1 == Time(Limits::max(), TimeUnit::TOKEN));
  CHECK_FALSE(share(NAN) == share(NAN));
}

TEST_CASE("Mixed units throw in every comparison and sum; one factor must be a share") {
  const Time ep = "3ep", ba = "3ba";
  CHECK_THROWS_AS((void)(ep == ba), TimeUnitError);
  CHECK_THROWS_AS((void)(ep != ba), TimeUnitError);
  CHECK_THROWS_AS((void)(ep < ba), TimeUnitError);
  CHECK_THROWS_AS((void)(ep <= ba), TimeUnitError);
  CHECK_THROWS_AS((void)(ep > ba), TimeUnitError);
  CHECK_THROWS_AS((void)(ep >= ba), TimeUnitError);
  CHECK_THROWS_AS(ep + ba, TimeUnitError);
  CHECK_THROWS_AS(ep - ba, TimeUnitError);
  CHECK_THROWS_AS(ep / ba, TimeUnitError);
  CHECK_THROWS_AS(ep % ba, TimeUnitError);
  CHECK_THROWS_AS(ep * ba, TimeUnitError);
  CHECK_THROWS_AS(ep * ep, TimeUnitError);
  CHECK_THROWS_AS(ep + 0.5, TimeTypeError);
  CHECK_THROWS_AS((void)(ep < 3.5), TimeTypeError);
  CHECK_THROWS_AS(Time("0.5dur").count(), TimeUnitError);
}

TEST_CASE("Results beyond 64 bits and divisions by zero throw") {
  const Time most(Limits::max(), TimeUnit::BATCH), least(Limits::min(), TimeUnit::BATCH);
  CHECK_THROWS_AS(most + 1, TimeRangeError);
  CHECK_THROWS_AS(least - 1, TimeRangeError);
  CHECK_THROWS_AS(-least, TimeRangeError);
  CHECK_THROWS_AS(most * 2, TimeRangeError);
  CHECK_THROWS_AS(most * 1.0, TimeRangeError);  // rounds up to 2^63
  CHECK_THROWS_AS(least / -1, TimeRangeError);
  CHECK_THROWS_AS(most / 0.5, TimeRangeError);
  CHECK_THROWS_AS(most * NAN, TimeRangeError);
  CHECK(least % -1 == 0);
  CHECK(least * 1.0 == least);
  for (Time time : {Time("4ep"), Time("0.5dur")}) {
    CHECK_THROWS_AS(time / 0, TimeRangeError);
    CHECK_THROWS_AS(time / 0.0, TimeRangeError);
    CHECK_THROWS_AS(time % 0, TimeRangeError);
    CHECK_THROWS_AS(time / (time - time), TimeRangeError);
  }
}

TEST_CASE("Sums undo differences, and a time is its quotient times the divisor plus the rest") {
  std::mt19937_64 random(4);
  std::uniform_int_distribution<std::int64_t> number(-1'000'000, 1'000'000);
  for (int i = 0; i < 10'000; ++i) {
    const Time a(number(random), TimeUnit::SAMPLE), b(number(random), TimeUnit::SAMPLE);
    CAPTURE(a);
    CAPTURE(b);
    CHECK(a + b - b == a);
    CHECK(a + b == b + a);
    CHECK(a - b == -(b - a));
    CHECK((a < b) == (b > a));
    if (b == 0) continue;
    const Time rest = a % b;
    CHECK((rest == 0 || (rest < 0) == (b < 0)));
    CHECK((a - rest) / b.count() * b.count() + rest == a);
    CHECK((b > 0 ? rest < b : rest > b));
  }
}

TEST_CASE("A timestamp counts batches, epochs and iterations") {
  using std::chrono::seconds;
  Timestamp t;
  t = t.to_next_batch(10, 20, seconds(5));
  CHECK(t == Timestamp{.batch = 1,
                       .sample = 10,
                       .token = 20,
                       .token_in_iteration = 20,
                       .batch_in_epoch = 1,
                       .sample_in_epoch = 10,
                       .token_in_epoch = 20,
                       .total_wct = seconds(5),
                       .iteration_wct = seconds(5),
                       .epoch_wct = seconds(5),
                       .batch_wct = seconds(5)});
  t = t.to_next_epoch();
  t = t.to_next_batch(5, 0, seconds(10)).to_next_batch(5, 1, seconds(10));
  CHECK(t.batch_in_epoch == 2);
  CHECK(t.sample_in_epoch == 10);
  CHECK(t.epoch_wct == seconds(20));
  CHECK(t.batch_wct == seconds(10));
  t = t.to_next_epoch();
  CHECK(t.epoch_in_iteration == 2);
  t = t.to_next_batch(5, 1, seconds(10)).to_next_iteration(seconds(5));
  CHECK(t == Timestamp{.iteration = 1, .epoch = 2, .batch = 4, .sample = 25, .token = 22, .total_wct = seconds(40)});
}

TEST_CASE("A timestamp gives the total of a unit and says whether a limit is reached") {
  const Timestamp t{.iteration = 1,
                    .epoch = 2,
                    .batch = 7,
                    .sample = 28,
                    .token = 112,
                    .batch_in_epoch = 1,
                    .total_wct = Seconds(12.75)};
  CHECK(t.get(TimeUnit::ITERATION) == Time("1iter"));
  CHECK(t.get(TimeUnit::EPOCH) == Time("2ep"));
  CHECK(t.get(TimeUnit::BATCH) == Time("7ba"));
  CHECK(t.get(TimeUnit::SAMPLE) == Time("28sp"));
  CHECK(t.get(TimeUnit::TOKEN) == Time("112tok"));
  CHECK(t.get(TimeUnit::SECOND) == Time("12sec"));
  CHECK_THROWS_AS(t.get(TimeUnit::DURATION), TimeUnitError);
  CHECK(t.reached("7ba"));
  CHECK(t.reached("6ba"));
  CHECK_FALSE(t.reached("8ba"));
  CHECK_FALSE(t.reached("13sec"));
  CHECK_THROWS_AS(t.reached("0.5dur"), TimeUnitError);
}

}  // namespace
}  // namespace composer::time_test
