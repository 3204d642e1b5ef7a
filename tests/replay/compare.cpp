#include "tests/replay/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace composer::replay {
namespace {

std::string shortened(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 200) text = text.substr(0, 200) + "...";
  return text;
}

std::string mismatch(const std::string& where, const Json& want, const Json& got) {
  return (where.empty() ? "result" : where) + ": " + shortened(want) + " was recorded, got " + shortened(got);
}

bool is_number(const Json& value) { return value.is_number() || value == "nan" || value == "inf" || value == "-inf"; }

bool same_number(const Json& want, const Json& got, Tolerance tolerance) {
  if (want.is_number_integer() && got.is_number_integer()) return want == got;
  const double a = as_double(want), b = as_double(got);
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  if (std::isinf(a) || std::isinf(b)) return false;
  return std::fabs(a - b) <= std::max(tolerance.absolute, tolerance.relative * std::max(std::fabs(a), std::fabs(b)));
}

std::optional<std::string> difference(const std::string& where, const Json& want, const Json& got,
                                      Tolerance tolerance) {
  if (is_number(want) && is_number(got)) {
    if (same_number(want, got, tolerance)) return std::nullopt;
    return mismatch(where, want, got);
  }
  if (want.type() != got.type()) return mismatch(where, want, got);
  if (want.is_array()) {
    for (std::size_t i = 0; i < std::min(want.size(), got.size()); ++i) {
      if (auto found = difference(where + "[" + std::to_string(i) + "]", want[i], got[i], tolerance)) return found;
    }
    if (want.size() == got.size()) return std::nullopt;
    return (where.empty() ? "result" : where) + ": " + std::to_string(want.size()) + " entries were recorded, got " +
           std::to_string(got.size());
  }
  if (!want.is_object()) return want == got ? std::nullopt : std::optional(mismatch(where, want, got));
  const std::string prefix = where.empty() ? "" : where + ".";
  for (const auto& [key, value] : want.items()) {
    if (!got.contains(key)) return prefix + key + ": " + shortened(value) + " was recorded, got nothing";
    if (auto found = difference(prefix + key, value, got.at(key), tolerance)) return found;
  }
  for (const auto& [key, value] : got.items()) {
    if (!want.contains(key)) return prefix + key + ": nothing was recorded, got " + shortened(value);
  }
  return std::nullopt;
}

}  // namespace

Outcome unsupported(std::string why) { return {Verdict::UNSUPPORTED, std::move(why), {}}; }
Outcome wrong(std::string what) { return {Verdict::WRONG, std::move(what), {}}; }

std::optional<std::string> first_difference(const Json& want, const Json& got, Tolerance tolerance) {
  return difference("", want, got, tolerance);
}

Outcome judge(const Json& c, const Json& recorded, const Json& got, const Rules& rules, Tolerance tolerance) {
  const auto from_recording = first_difference(recorded, got, tolerance);
  if (!from_recording) return {};

  Outcome outcome{Verdict::DIFFERENT, "", {}};
  Json expected = recorded;
  for (const Rule& rule : rules) {
    if (!rule.matches(c)) continue;
    const Json before = expected;
    rule.ours(expected, c);
    if (expected != before) outcome.rules.push_back(rule.name);
  }
  if (outcome.rules.empty()) return wrong(*from_recording);
  const auto from_ours = first_difference(expected, got, tolerance);
  if (!from_ours) return outcome;
  outcome.verdict = Verdict::WRONG;
  outcome.text = "after the rules " + Json(outcome.rules).dump() + ": " + *from_ours;
  return outcome;
}

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return value;
}

double as_double(const Json& number) {
  if (number.is_number()) return number.get<double>();
  if (number == "nan") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return number == "-inf" ? -infinity : infinity;
}

}  // namespace composer::replay
