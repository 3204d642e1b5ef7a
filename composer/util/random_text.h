#pragma once
// Names that nobody else chooses, as of a run or of a process.
#include <cstddef>
#include <random>
#include <string>
#include <string_view>

namespace composer::util {

// So many of these characters. The state of no generator of random numbers changes.
inline std::string random_text(std::size_t length, std::string_view characters = "0123456789abcdef") {
  std::random_device random;
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += characters[random() % characters.size()];
  return text;
}

}  // namespace composer::util
