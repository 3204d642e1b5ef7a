#pragma once
#include <string>
#include <string_view>

namespace composer::util {

// ASCII letters and digits, independent of the locale: with a Turkish locale, the standard library does not turn "I"
// into "i". scripts/layers.py refuses the standard library's functions.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_letter_or_digit(char c) { return is_letter(c) || is_digit(c); }

inline std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}
inline std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return result;
}

}  // namespace composer::util
