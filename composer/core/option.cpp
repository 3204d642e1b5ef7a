#include "composer/core/option.h"

#include <array>
#include <charconv>

#include "composer/core/error.h"
#include "composer/util/exact_text.h"

namespace composer {

std::string text_of(const StateValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&value)) return util::exact_text(*number);
  if (const auto* yes = std::get_if<bool>(&value)) return *yes ? "true" : "false";
  return "?";
}

namespace detail {
namespace {

template <class Number>
void read_number(const std::string& text, Number& value, const char* expected) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) throw ConfigError("expected ", expected, ", got \"", text, '"');
}

}  // namespace

void read_text(const std::string& text, std::string& value) { value = text; }
void read_text(const std::string& text, std::filesystem::path& value) { value = text; }
void read_text(const std::string& text, double& value) { read_number(text, value, "a number"); }
void read_text(const std::string& text, std::int64_t& value) { read_number(text, value, "a whole number"); }
void read_text(const std::string& text, bool& value) {
  if (text != "true" && text != "false") throw ConfigError("expected true or false, got \"", text, '"');
  value = text == "true";
}
void read_text(const std::string& text, Time& value) { value = Time::parse(text); }
void read_text(const std::string& text, Interval& value) { value = Interval::parse(text); }
void read_text(const std::string& text, Seconds& value) {
  double count = 0;
  read_text(text, count);
  value = Seconds(count);
}
void read_text(const std::string& text, std::optional<Time>& value) {
  value = text.empty() ? std::nullopt : std::optional(Time::parse(text));
}
void read_text(const std::string& text, std::optional<std::int64_t>& value) {
  value.reset();
  if (!text.empty()) read_text(text, value.emplace());
}
void read_text(const std::string& text, std::optional<std::uint64_t>& value) {
  value.reset();
  if (!text.empty()) read_number(text, value.emplace(), "a whole number");
}
void read_text(const std::string& text, std::optional<bool>& value) {
  value.reset();
  if (!text.empty()) read_text(text, value.emplace());
}
void read_text(const std::string& text, std::vector<std::string>& value) {
  value.clear();
  for (std::size_t begin = 0, end = 0; !text.empty() && end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    value.push_back(text.substr(begin, end - begin));
  }
}
void read_text(const std::string& text, std::map<std::string, std::string>& value) {
  value.clear();
  std::vector<std::string> entries;
  read_text(text, entries);
  for (const std::string& entry : entries) {
    const std::size_t equal = entry.find('=');
    if (equal == std::string::npos || equal == 0)
      throw ConfigError("expected key=value, separated by commas, got \"", text, '"');
    value[entry.substr(0, equal)] = entry.substr(equal + 1);
  }
}

std::string bound_text(double bound) {
  const auto whole = static_cast<std::int64_t>(bound);
  return static_cast<double>(whole) == bound ? std::to_string(whole) : util::exact_text(bound);
}

std::string units_text(const std::vector<TimeUnit>& units) {
  std::string text;
  for (std::size_t i = 0; i < units.size(); ++i)
    text += join(i == 0 ? "" : i + 1 < units.size() ? ", " : " or ", to_string(units[i]));
  return text;
}

std::string to_text(const std::string& value) { return value; }
std::string to_text(const std::filesystem::path& value) { return value.string(); }
std::string to_text(double value) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}
std::string to_text(std::int64_t value) { return std::to_string(value); }
std::string to_text(bool value) { return value ? "true" : "false"; }
std::string to_text(Time value) { return to_string(value); }
std::string to_text(const Interval& value) { return to_string(value); }
std::string to_text(Seconds value) { return to_text(value.count()); }
std::string to_text(const std::optional<Time>& value) { return value ? to_string(*value) : ""; }
std::string to_text(const std::optional<std::int64_t>& value) { return value ? std::to_string(*value) : ""; }
std::string to_text(const std::optional<std::uint64_t>& value) { return value ? std::to_string(*value) : ""; }
std::string to_text(const std::optional<bool>& value) { return value ? to_text(*value) : ""; }
std::string to_text(const std::vector<std::string>& value) {
  std::string text;
  for (const std::string& part : value) text += (text.empty() ? "" : ",") + part;
  return text;
}
std::string to_text(const std::map<std::string, std::string>& value) {
  std::string text;
  for (const auto& [key, entry] : value) text += join(text.empty() ? "" : ",", key, '=', entry);
  return text;
}

}  // namespace detail
}  // namespace composer
