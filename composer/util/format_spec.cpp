#include "composer/util/format_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "composer/core/error.h"
#include "composer/util/text.h"

namespace composer::util {
namespace {

[[noreturn]] void refuse(std::string_view spec) {
  throw ConfigError("the format :", spec, " is unknown; use e.g. {epoch:04} or {batch:>6}");
}

struct Spec {
  explicit Spec(std::string_view spec) : text(spec) {
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    if (spec.size() > 1 && is_align(spec[1])) {
      fill = spec[0], align = spec[1];
      spec.remove_prefix(2);
    } else if (!spec.empty() && is_align(spec[0])) {
      align = spec[0];
      spec.remove_prefix(1);
    }
    sign = take_any(spec, "+- ");
    zero = take_any(spec, "0") != 0;
    width = take_number(spec).value_or(0);
    group = take_any(spec, ",_");
    if (take_any(spec, ".") != 0) {
      precision = take_number(spec);
      if (!precision) refuse(text);
    }
    if (!spec.empty()) type = spec[0], spec.remove_prefix(1);
    if (!spec.empty()) refuse(text);
  }

  // Pads `digits`, which has no sign; the sign in `prefix` stands before the padding of '='.
  std::string padded(const std::string& prefix, const std::string& digits, char usual_align) const {
    const char where = align != 0 ? align : zero && usual_align == '>' ? '=' : usual_align;
    const char with = filler();
    const std::size_t size = prefix.size() + digits.size(), missing = width > size ? width - size : 0;
    if (where == '=') return prefix + std::string(missing, with) + digits;
    const std::size_t before = where == '>' ? missing : where == '^' ? missing / 2 : 0;
    return std::string(before, with) + prefix + digits + std::string(missing - before, with);
  }

  char filler() const { return fill != 0 ? fill : zero ? '0' : ' '; }
  // Whether padding zeros are inserted between the sign and the digits, where they count as digits.
  bool adds_digits() const { return filler() == '0' && (align == '=' || (align == 0 && zero)); }

  std::string sign_of(bool negative) const {
    return negative ? "-" : sign == 0 || sign == '-' ? "" : std::string(1, sign);
  }

  std::string_view text;
  char fill = 0, align = 0, sign = 0, group = 0, type = 0;
  bool zero = false;
  std::size_t width = 0;
  std::optional<std::size_t> precision;

 private:
  static char take_any(std::string_view& spec, std::string_view of) {
    if (spec.empty() || of.find(spec[0]) == std::string_view::npos) return 0;
    const char taken = spec[0];
    spec.remove_prefix(1);
    return taken;
  }

  std::optional<std::size_t> take_number(std::string_view& spec) const {
    std::size_t number = 0;
    const auto read = std::from_chars(spec.data(), spec.data() + spec.size(), number);
    if (read.ptr == spec.data()) return std::nullopt;
    if (read.ec != std::errc() || number > 255) refuse(text);
    spec.remove_prefix(static_cast<std::size_t>(read.ptr - spec.data()));
    return number;
  }
};

std::string with_groups(std::string digits, char separator, std::size_t size) {
  for (std::size_t end = digits.size(); end > size; end -= size) digits.insert(end - size, 1, separator);
  return digits;
}

// Formats a float as Python prints it: the shortest form, with a decimal point.
std::string shortest(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  const std::string digits(text.data(), end.ptr);
  return digits.find_first_of(".en") == std::string::npos ? digits + ".0" : digits;
}

}  // namespace

std::string format_count(std::int64_t value, std::string_view text) {
  const Spec spec(text);
  if (std::string_view("fFeEgG%").find(spec.type) != std::string_view::npos && spec.type != 0)
    return format_seconds(static_cast<double>(value), text);
  const int base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  if (spec.precision || (base == 10 && spec.type != 0 && spec.type != 'd') || (base != 10 && spec.group == ','))
    refuse(text);
  std::array<char, 65> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, base);
  std::string digits(buffer.data(), end.ptr);
  if (value < 0) digits.erase(0, 1);
  if (spec.type == 'X')
    std::ranges::transform(digits, digits.begin(), [](char c) { return c > '9' ? c - 'a' + 'A' : c; });
  const std::string sign = spec.sign_of(value < 0);
  if (spec.group == 0) return spec.padded(sign, digits, '>');
  std::string grouped = with_groups(digits, spec.group, base == 10 ? 3 : 4);
  while (spec.adds_digits() && sign.size() + grouped.size() < spec.width)
    grouped = with_groups(digits.insert(0, 1, '0'), spec.group, base == 10 ? 3 : 4);
  return spec.padded(sign, grouped, '>');
}

std::string format_text(std::string_view value, std::string_view text) {
  const Spec spec(text);
  if ((spec.type != 0 && spec.type != 's') || spec.sign != 0 || spec.align == '=' || spec.group != 0) refuse(text);
  return spec.padded("", std::string(value.substr(0, spec.precision.value_or(value.size()))), '<');
}

std::string format_seconds(double value, std::string_view text) {
  const Spec spec(text);
  if (spec.group != 0 || (spec.type != 0 && std::string_view("fFeEgG%").find(spec.type) == std::string_view::npos))
    refuse(text);
  const bool negative = std::signbit(value);
  const double size = std::fabs(value);
  std::string digits;
  if (spec.type == 0 && !spec.precision)
    digits = shortest(size);
  else if (spec.type == '%')
    digits = printed("%.*f", static_cast<int>(spec.precision.value_or(6)), size * 100) + "%";
  else
    digits = printed((std::string("%.*") + (spec.type == 0 ? 'g' : spec.type)).c_str(),
                     static_cast<int>(spec.precision.value_or(6)), size);
  return spec.padded(spec.sign_of(negative), digits, '>');
}

}  // namespace composer::util
