#pragma once
#include <cstddef>
#include <string_view>

namespace composer::net {

// The text without leading and trailing spaces and line ends.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpaces), last = text.find_last_not_of(kSpaces);
  return first == std::string_view::npos ? std::string_view() : text.substr(first, last - first + 1);
}

}  // namespace composer::net
