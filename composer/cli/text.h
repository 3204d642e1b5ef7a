#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "composer/cli/console.h"

namespace composer::cli {

std::string bytes_text(std::uint64_t number);  // 1.2 MB
std::string number_text(double number);        // six significant digits
std::string seconds_text(double seconds);      // 1.2 s, 3 min 20 s
std::string shape_text(const std::vector<std::int64_t>& shape);
std::string plural(std::int64_t number, const std::string& noun);  // 1 kill, 2 kills
std::string printable(std::string_view text);                      // removes control characters
std::string one_line(const std::exception& error);

enum class Color : std::uint8_t { BOLD, RED, GREEN, YELLOW };
std::string colored(const Console& console, Color color, const std::string& text);

}  // namespace composer::cli
