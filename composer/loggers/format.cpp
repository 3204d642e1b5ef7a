#include "composer/loggers/format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/scalar.h"
#include "composer/util/letters.h"
#include "composer/util/text.h"

namespace composer::loggers {
namespace {

std::string four_decimals(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 400> text;  // the largest number takes 315 characters
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 4).ptr;
  return {text.data(), end};
}

// The fewest digits that represent the number exactly, from 15 on.
std::string shortest(double value) {
  std::string text;
  for (int digits = 15; digits <= 17; ++digits) {
    text = util::printed("%.*g", digits, value);
    double read = 0;
    std::from_chars(text.data(), text.data() + text.size(), read);
    if (read == value) break;
  }
  return text;
}

std::string shape_of(const at::Tensor& tensor) {
  const auto text_of = [](std::int64_t size) { return std::to_string(size); };  // independent of the program's locale
  return "Tensor of shape torch.Size([" + (tensor.defined() ? listed(tensor.sizes(), text_of) : "") + "])";
}

// Whether YAML reads the text as a text without quotes. Cautious: false for some texts that would need no quotes.
bool is_plain_yaml(std::string_view text) {
  const bool version =
      text.find_first_not_of("0123456789.") == std::string_view::npos && std::ranges::count(text, '.') == 2;
  if (version) return text.front() != '.' && text.back() != '.';
  if (text.empty() || !(util::is_letter(text.front()) || text.front() == '/') || text.back() == ' ') return false;
  if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }))
    return false;
  const std::string lower = util::lower(text);
  for (const char* word : {"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
    if (lower == word) return false;
  return text.find(": ") == std::string_view::npos && text.back() != ':' && text.find(" #") == std::string_view::npos;
}

std::string yaml_text(std::string_view text) {
  if (is_plain_yaml(text)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      (quoted += '\\') += c;
    else if (static_cast<unsigned char>(c) < ' ' || c == '\x7f')
      quoted += util::printed("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else
      quoted += c;
  }
  return quoted += '"';
}

}  // namespace

std::string format_log_value(const LogValue& value) {
  if (const auto* tensor = std::get_if<at::Tensor>(&value);
      tensor != nullptr && (!tensor->defined() || tensor->numel() != 1))
    return shape_of(*tensor);
  const Scalar scalar = read_scalar(value);
  if (const auto* text = std::get_if<std::string>(&scalar)) return '"' + *text + '"';
  if (const auto* flag = std::get_if<bool>(&scalar)) return *flag ? "True" : "False";
  if (const auto* count = std::get_if<std::int64_t>(&scalar)) return std::to_string(*count);
  return four_decimals(std::get<double>(scalar));
}

std::string format_short(double value) {
  const double size = std::abs(value);
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (size >= 9.9995e14 || (size > 0 && size < 0.00095)) return util::printed("%.2e", value);
  if (size < 9'999.5)
    return size >= 99.995    ? util::printed("%.1f", value)
           : size >= 9.99995 ? util::printed("%.2f", value)
                             : util::printed("%.4f", value);
  double scaled = value / 1e3;
  const char* units = "kMGT";
  for (; std::abs(scaled) >= 999.95 && units[1] != '\0'; ++units) scaled /= 1e3;
  return util::printed("%.1f%c", scaled, *units);
}

std::string format_short(const LogValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return format_short(*number);
  if (const auto* tensor = std::get_if<at::Tensor>(&value);
      tensor != nullptr && tensor->defined() && tensor->numel() == 1)
    return std::visit([](const auto& held) { return format_short(LogValue(held)); }, read_scalar(*tensor));
  return format_log_value(value);
}

std::string format_unquoted(const LogValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : format_short(value);
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  if (seconds < 9.95 && seconds != std::floor(seconds)) return util::printed("%.1fs", seconds);
  const auto whole = static_cast<long long>(seconds);
  const long long s = whole % 60, m = whole / 60 % 60, h = whole / 3600 % 24, d = whole / 86'400;
  if (d > 0) return util::printed("%lldd %02lld:%02lld", d, h, m);
  if (h > 0) return util::printed("%lld:%02lld:%02lld", h, m, s);
  if (m > 0) return util::printed("%lld:%02lld", m, s);
  return util::printed("%llds", s);
}

std::string format_yaml(std::string_view key, const LogValue& value) {
  std::string text;
  if (const auto* held = std::get_if<std::string>(&value))
    text = yaml_text(*held);
  else if (const auto* flag = std::get_if<bool>(&value))
    text = *flag ? "true" : "false";
  else if (const auto* number = std::get_if<double>(&value))
    text = shortest(*number);
  else
    text = format_log_value(value);
  return yaml_text(key) + ": " + text;
}

}  // namespace composer::loggers
