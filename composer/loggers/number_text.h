#pragma once
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace composer::loggers {

inline void append_number(std::string& text, std::int64_t value) {
  std::array<char, 20> digits{};  // the smallest number takes 20 characters
  text.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

// The fewest digits that represent the number exactly; "nan", "inf" and "-inf".
inline void append_number(std::string& text, double value) {
  if (std::isnan(value)) {
    text += "nan";  // without the sign that to_chars would write
    return;
  }
  std::array<char, 32> digits{};  // a number takes at most 24 characters
  text.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

}  // namespace composer::loggers
