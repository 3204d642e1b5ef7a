#include "composer/loggers/json_text.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "composer/loggers/number_text.h"

namespace composer::loggers {
namespace {

struct AppendJson {
  std::string& line;
  void operator()(std::int64_t value) const { append_number(line, value); }
  void operator()(bool value) const { line += value ? "true" : "false"; }
  void operator()(const std::string& value) const { line += json_text(value); }
  void operator()(double value) const {
    if (std::isnan(value)) {
      line += "\"nan\"";
    } else if (std::isinf(value)) {
      line += value > 0 ? "\"inf\"" : "\"-inf\"";
    } else {
      append_number(line, value);
    }
  }
};

// Whether the text needs no escapes in JSON, as most keys.
bool is_plain_json(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
}

}  // namespace

std::string json_text(std::string_view text) {
  if (is_plain_json(text)) {
    std::string quoted = "\"";
    (quoted += text) += '"';
    return quoted;
  }
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const LogTable& table, const std::function<std::string(const Scalar&)>& value_text) {
  std::string text = "{\"columns\":[";
  for (std::size_t i = 0; i < table.columns.size(); ++i) (text += i > 0 ? "," : "") += json_text(table.columns[i]);
  text += "],\"data\":[";
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    text += row > 0 ? ",[" : "[";
    for (std::size_t i = 0; i < table.rows[row].size(); ++i) {
      if (i > 0) text += ',';
      const Scalar value = read_scalar(table.rows[row][i]);
      if (value_text)
        text += value_text(value);
      else
        append_json(text, value);
    }
    text += ']';
  }
  return text + "]}";
}

void append_json(std::string& line, const Scalar& value) { std::visit(AppendJson{line}, value); }

}  // namespace composer::loggers
