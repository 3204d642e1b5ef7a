#include "composer/core/time.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <ostream>

#include "composer/core/error.h"

namespace composer {
namespace {

using Limits = std::numeric_limits<std::int64_t>;

void need_same_unit(Time a, Time b, const char* what) {
  if (a.unit() == b.unit()) return;
  throw TimeUnitError("Time: cannot ", what, " ", to_string(a), " and ", to_string(b), ", which have different units");
}

[[noreturn]] void throw_too_large(Time a, const char* operation, const std::string& b) {
  throw TimeRangeError("Time: ", to_string(a), " ", operation, " ", b, " does not fit into 64 bits");
}

[[noreturn]] void throw_division_by_zero(Time a) { throw TimeRangeError("Time: ", to_string(a), " divided by zero"); }

bool is_share(Time time) { return time.unit() == TimeUnit::DURATION; }

Time share(double value) { return Time::from(value, TimeUnit::DURATION); }

// The shortest digits that give the same double when parsed, in the form of Composer's files: 1.0, 0.01, 1e-05, 1e+16.
std::string shortest(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double magnitude = std::fabs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  char buffer[40];
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

// `value` truncated towards zero, in the unit of `a`.
Time truncated(double value, Time a, const char* operation, double b) {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  if (!(value >= -kTwoTo63 && value < kTwoTo63)) throw_too_large(a, operation, shortest(b));
  return Time(static_cast<std::int64_t>(value), a.unit());
}

}  // namespace

std::ostream& operator<<(std::ostream& out, TimeUnit unit) { return out << to_string(unit); }

TimeUnit parse_time_unit(std::string_view text) {
  for (std::size_t i = 0; i < kTimeUnitNames.size(); ++i) {
    const auto& [suffix, name] = kTimeUnitNames[i];
    if (detail::same_letters(text, suffix) || detail::same_letters(text, name)) return static_cast<TimeUnit>(i);
  }
  throw TimeSyntaxError("TimeUnit: \"", text, "\" is none of iter, ep, ba, sp, tok, dur, sec");
}

namespace detail {

void this_is_not_a_time(std::string_view text) {
  throw TimeSyntaxError("Time: \"", text,
                        "\" is not a time: expected a number and one of iter, ep, ba, sp, tok, dur, sec",
                        " (\"10ep\", \"0.5dur\"), or hours, minutes and seconds (\"1h30m\")");
}

void this_needs_a_whole_number(std::string_view text) {
  throw TimeTypeError("Time: \"", text, "\" is not a whole number, and only dur has fractions");
}

void this_time_is_too_large(std::string_view text) {
  throw TimeRangeError("Time: \"", text, "\" does not fit into 64 bits");
}

double rounded_at_run_time(std::string_view number, bool tiny) {
  std::string digits;
  for (char c : number) {
    if (c != '_' && c != '+') digits += c;
  }
  // Rejects "1e+5", whose sign was cut off above, and "+5".
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc::result_out_of_range) return value;
  const double magnitude = tiny ? 0 : std::numeric_limits<double>::infinity();
  return number.front() == '-' ? -magnitude : magnitude;
}

}  // namespace detail

Time Time::from(double value, TimeUnit unit) {
  if (unit != TimeUnit::DURATION)
    throw TimeTypeError("Time: ", shortest(value), to_string(unit),
                        " is given as a fraction, and only dur has fractions");
  Time time(0, unit);
  time.bits_ = std::bit_cast<std::int64_t>(value);
  return time;
}

std::int64_t Time::throw_no_count() const {
  throw TimeUnitError("Time: ", to_string(*this), " is a share, not a count");
}

std::string to_string(Time time) {
  std::string text = is_share(time) ? shortest(time.as_double()) : std::to_string(time.count());
  return text += to_string(time.unit());
}

std::ostream& operator<<(std::ostream& out, Time time) { return out << to_string(time); }

bool operator==(Time a, Time b) { return (a <=> b) == 0; }

std::partial_ordering operator<=>(Time a, Time b) {
  need_same_unit(a, b, "compare");
  if (is_share(a)) return a.as_double() <=> b.as_double();
  return a.count() <=> b.count();
}

Time operator+(Time a, Time b) {
  need_same_unit(a, b, "add");
  if (is_share(a)) return share(a.as_double() + b.as_double());
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a.count(), b.count(), &sum)) throw_too_large(a, "+", to_string(b));
  return Time(sum, a.unit());
}

Time operator-(Time a, Time b) {
  need_same_unit(a, b, "subtract");
  if (is_share(a)) return share(a.as_double() - b.as_double());
  std::int64_t difference = 0;
  if (__builtin_sub_overflow(a.count(), b.count(), &difference)) throw_too_large(a, "-", to_string(b));
  return Time(difference, a.unit());
}

Time operator-(Time a) {
  if (is_share(a)) return share(-a.as_double());
  return Time(0, a.unit()) - a;
}

Time operator*(Time a, Time b) {
  if (is_share(b)) return a * b.as_double();
  if (is_share(a)) return b * a.as_double();
  throw TimeUnitError("Time: cannot multiply ", to_string(a), " by ", to_string(b), ", one must be in dur");
}

Time operator*(Time a, std::int64_t k) {
  if (is_share(a)) return share(a.as_double() * static_cast<double>(k));
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a.count(), k, &product)) throw_too_large(a, "*", std::to_string(k));
  return Time(product, a.unit());
}

Time operator*(Time a, double k) {
  const double product = a.as_double() * k;
  return is_share(a) ? share(product) : truncated(product, a, "*", k);
}

Time operator/(Time a, Time b) {
  need_same_unit(a, b, "divide");
  if (b.as_double() == 0) throw_division_by_zero(a);
  return share(a.as_double() / b.as_double());
}

Time operator/(Time a, std::int64_t k) {
  if (k == 0) throw_division_by_zero(a);
  if (is_share(a)) return share(a.as_double() / static_cast<double>(k));
  if (a.count() == Limits::min() && k == -1) throw_too_large(a, "/", "-1");
  return Time(a.count() / k, a.unit());
}

Time operator/(Time a, double k) {
  if (k == 0) throw_division_by_zero(a);
  const double quotient = a.as_double() / k;
  return is_share(a) ? share(quotient) : truncated(quotient, a, "/", k);
}

Time operator%(Time a, Time b) {
  need_same_unit(a, b, "divide");
  if (b.as_double() == 0) throw_division_by_zero(a);
  if (is_share(a)) {
    const double rest = std::fmod(a.as_double(), b.as_double());
    return share(rest != 0 && (rest < 0) != (b.as_double() < 0) ? rest + b.as_double() : rest);
  }
  if (b.count() == -1) return Time(0, a.unit());  // the quotient of the smallest count by -1 does not fit
  const std::int64_t rest = a.count() % b.count();
  return Time(rest != 0 && (rest < 0) != (b.count() < 0) ? rest + b.count() : rest, a.unit());
}

Time Timestamp::get(TimeUnit unit) const {
  switch (unit) {
    case TimeUnit::ITERATION:
      return Time(iteration, unit);
    case TimeUnit::EPOCH:
      return Time(epoch, unit);
    case TimeUnit::BATCH:
      return Time(batch, unit);
    case TimeUnit::SAMPLE:
      return Time(sample, unit);
    case TimeUnit::TOKEN:
      return Time(token, unit);
    case TimeUnit::SECOND:
      return Time(static_cast<std::int64_t>(total_wct.count()), unit);
    case TimeUnit::DURATION:
      break;
  }
  throw TimeUnitError("Timestamp: dur is a share of the run and has no counter");
}

}  // namespace composer
