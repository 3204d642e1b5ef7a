#pragma once
// Makes names that nobody else chooses, for example of a run or a process.
#include <cstddef>
#include <random>
#include <string>
#include <string_view>

namespace composer::util {

// Returns `length` random characters. Does not change the state of any random number generator.
inline std::string random_text(std::size_t length, std::string_view characters = "0123456789abcdef") {
  std::random_device random;
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += characters[random() % characters.size()];
  return text;
}

}  // namespace composer::util
