// Parses the text of a time, with the same code at compile time and at run time. Users call Time::parse.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "composer/core/time_unit.h"

namespace composer::detail {

struct ParsedTime {
  TimeUnit unit;
  std::int64_t count;  // for units that are counted
  double share;        // for DURATION
};

// These functions throw. They are not constexpr, so for a wrong literal the compiler's error names the one that would
// be called.
[[noreturn]] COMPOSER_EXPORT void this_is_not_a_time(std::string_view text);
[[noreturn]] COMPOSER_EXPORT void this_needs_a_whole_number(std::string_view text);
[[noreturn]] COMPOSER_EXPORT void this_time_is_too_large(std::string_view text);
// The double nearest to a number with many digits or a large exponent; literals do not support these.
COMPOSER_EXPORT double rounded_at_run_time(std::string_view number, bool tiny);

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

constexpr bool same_letters(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

// A number as written: digits * 10^exponent. Digits after the first 19 significant ones are cut off.
struct Decimal {
  bool negative = false;
  std::uint64_t digits = 0;
  std::int64_t exponent = 0;
  std::int64_t lowest = 0;  // exponent of the last digit that is not zero, cut off or not
  bool cut = false;
};

class DecimalReader {
 public:
  // Returns nullopt unless the whole of `text` is a number.
  static constexpr std::optional<Decimal> read(std::string_view text) {
    DecimalReader reader;
    Decimal& number = reader.number_;
    if (text.starts_with('+') || text.starts_with('-')) {
      number.negative = text[0] == '-';
      text.remove_prefix(1);
    }
    bool any = false;
    for (int digit; (digit = take_digit(text, !any)) >= 0; any = true) reader.add(digit);
    if (text.starts_with('.')) {
      text.remove_prefix(1);
      bool first = true;
      for (int digit; (digit = take_digit(text, first)) >= 0; first = false) reader.add(digit), ++reader.after_point_;
      any = any || !first;
    }
    std::int64_t power = 0;
    if (any && (text.starts_with('e') || text.starts_with('E'))) {
      text.remove_prefix(1);
      const bool negative = text.starts_with('-');
      if (negative || text.starts_with('+')) text.remove_prefix(1);
      // A billion stands for everything larger, because no count or double reaches it.
      any = false;
      for (int digit; (digit = take_digit(text, !any)) >= 0; any = true)
        power = power < 1'000'000'000 ? power * 10 + digit : power;
      if (negative) power = -power;
    }
    if (!any || !text.empty()) return std::nullopt;
    number.exponent = power + reader.zeros_ - reader.after_point_;
    number.lowest = power + reader.trailing_ - reader.after_point_;
    return number;
  }

 private:
  // Removes a digit from the front of `text`, and a single underscore before it, unless the digit is the first. Returns
  // -1 if there is none.
  static constexpr int take_digit(std::string_view& text, bool first) {
    if (!first && text.size() > 1 && text[0] == '_' && is_digit(text[1])) text.remove_prefix(1);
    if (text.empty() || !is_digit(text[0])) return -1;
    const int digit = text[0] - '0';
    text.remove_prefix(1);
    return digit;
  }

  constexpr void add(int digit) {
    trailing_ = digit == 0 ? trailing_ + 1 : 0;
    const bool keep = digit != 0 && kept_ + zeros_ < 19;
    if (digit != 0 && !keep) number_.cut = true;
    if (number_.digits == 0 && digit == 0) return;
    ++zeros_;
    if (!keep) return;
    kept_ += zeros_;
    for (; zeros_ > 0; --zeros_) number_.digits *= 10;
    number_.digits += static_cast<std::uint64_t>(digit);
  }

  Decimal number_;
  std::int64_t kept_ = 0;         // significant digits in number_.digits
  std::int64_t zeros_ = 0;        // digits after those
  std::int64_t trailing_ = 0;     // zeros after the last digit that is not zero
  std::int64_t after_point_ = 0;  // digits after the point
};

constexpr std::int64_t whole_number(const Decimal& number, std::string_view text) {
  if (number.digits == 0) return 0;
  if (number.lowest < 0) this_needs_a_whole_number(text);
  if (number.cut || number.exponent > 18) this_time_is_too_large(text);
  const std::uint64_t limit = (std::uint64_t{1} << 63) - (number.negative ? 0 : 1);
  std::uint64_t magnitude = number.digits;
  for (std::int64_t i = 0; i < number.exponent; ++i) {
    if (magnitude > limit / 10) this_time_is_too_large(text);
    magnitude *= 10;
  }
  if (magnitude > limit) this_time_is_too_large(text);
  return static_cast<std::int64_t>(number.negative ? 0 - magnitude : magnitude);
}

// The nearest double. For few digits, one exactly representable number is multiplied or divided by another, so only the
// result is rounded.
constexpr double nearest_double(const Decimal& number, std::string_view text) {
  double magnitude = 0;
  if (number.cut || number.digits > (std::uint64_t{1} << 53) || number.exponent < -22 || number.exponent > 22) {
    if (number.digits != 0) return rounded_at_run_time(text, number.exponent < 0);
  } else {
    double power = 1;
    for (std::int64_t i = number.exponent < 0 ? -number.exponent : number.exponent; i > 0; --i) power *= 10;
    magnitude = static_cast<double>(number.digits);
    magnitude = number.exponent < 0 ? magnitude / power : magnitude * power;
  }
  return number.negative ? -magnitude : magnitude;
}

// Parses "inf" and "nan", with or without a sign.
constexpr std::optional<double> read_not_finite(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (same_letters(text, "inf") || same_letters(text, "infinity")) return negative ? -kInfinity : kInfinity;
  if (same_letters(text, "nan")) return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

// Parses "1h20m40s" into seconds; each part is optional. Returns nullopt for any other text.
constexpr std::optional<std::int64_t> read_clock(std::string_view text) {
  const std::string_view whole = text;
  std::int64_t total = 0;
  bool too_large = false;
  for (const auto& [letter, seconds] : {std::pair{'h', 3600}, {'m', 60}, {'s', 1}}) {
    std::size_t digits = 0;
    while (digits < text.size() && is_digit(text[digits])) ++digits;
    if (digits == 0 || digits == text.size() || text[digits] != letter) continue;
    std::int64_t part = 0;
    for (char c : text.substr(0, digits)) {
      too_large |= __builtin_mul_overflow(part, 10, &part) || __builtin_add_overflow(part, c - '0', &part);
    }
    too_large |= __builtin_mul_overflow(part, seconds, &part) || __builtin_add_overflow(total, part, &total);
    text.remove_prefix(digits + 1);
  }
  if (whole.empty() || !text.empty()) return std::nullopt;
  if (too_large) this_time_is_too_large(whole);
  return total;
}

constexpr ParsedTime parse_time(std::string_view text) {
  if (const auto seconds = read_clock(text)) return {TimeUnit::SECOND, *seconds, 0};
  std::string_view number = text;
  if (number.ends_with('\n')) number.remove_suffix(1);  // the text may be a line of a file
  for (std::size_t i = 0; i < kTimeUnitNames.size(); ++i) {
    const std::string_view suffix = kTimeUnitNames[i].suffix;
    if (number.size() <= suffix.size()) continue;
    if (!same_letters(number.substr(number.size() - suffix.size()), suffix)) continue;

    const auto unit = static_cast<TimeUnit>(i);
    number.remove_suffix(suffix.size());
    while (!number.empty() && is_blank(number.front())) number.remove_prefix(1);
    while (!number.empty() && is_blank(number.back())) number.remove_suffix(1);
    if (const auto decimal = DecimalReader::read(number)) {
      if (unit == TimeUnit::DURATION) return {unit, 0, nearest_double(*decimal, number)};
      return {unit, whole_number(*decimal, text), 0};
    }
    const auto special = read_not_finite(number);
    if (!special) this_is_not_a_time(text);
    if (unit == TimeUnit::DURATION) return {unit, 0, *special};
    if (*special != *special) this_is_not_a_time(text);
    this_time_is_too_large(text);
  }
  this_is_not_a_time(text);
}

struct ParsedInterval {
  ParsedTime time;
  double epochs;  // a number of epochs that is not whole, as in "0.25ep", and rounded up in `time`; otherwise 0
};

constexpr ParsedInterval parse_interval(std::string_view text) {
  std::string_view number = text;
  if (number.ends_with('\n')) number.remove_suffix(1);
  if (number.size() > 2 && same_letters(number.substr(number.size() - 2), "ep")) {
    number.remove_suffix(2);
    while (!number.empty() && is_blank(number.front())) number.remove_prefix(1);
    while (!number.empty() && is_blank(number.back())) number.remove_suffix(1);
    if (const auto decimal = DecimalReader::read(number);
        decimal && !decimal->negative && decimal->digits != 0 && decimal->lowest < 0) {
      const double epochs = nearest_double(*decimal, number);
      constexpr double kMost = 1e15;  // larger numbers are whole
      if (epochs > 0 && epochs < kMost) {
        const auto below = static_cast<std::int64_t>(epochs);
        return {{TimeUnit::EPOCH, below + (static_cast<double>(below) < epochs ? 1 : 0), 0}, epochs};
      }
    }
  }
  return {parse_time(text), 0};
}

}  // namespace composer::detail
