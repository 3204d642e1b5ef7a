#include "composer/loggers/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

namespace composer::loggers {
namespace {

struct Append {
  std::string& line;
  void operator()(std::int64_t value) const { line += std::to_string(value); }
  void operator()(bool value) const { line += value ? "true" : "false"; }
  void operator()(const std::string& value) const { line += json_text(value); }
  void operator()(double value) const {
    if (std::isnan(value)) {
      line += "\"nan\"";
    } else if (std::isinf(value)) {
      line += value > 0 ? "\"inf\"" : "\"-inf\"";
    } else {
      std::array<char, 32> digits{};
      line.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
    }
  }
};

}  // namespace

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_json(std::string& line, const Scalar& value) { std::visit(Append{line}, value); }

}  // namespace composer::loggers
