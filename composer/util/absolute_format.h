#pragma once
#include <filesystem>
#include <string>

namespace composer::util {

// Makes a path with placeholders (for format_name()) absolute, so that it names the same file after the program has
// changed its working directory. An empty path stays empty.
inline std::string absolute_format(const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  std::string absolute;
  for (const char c : std::filesystem::current_path().string()) {
    absolute += c;
    if (c == '{' || c == '}') absolute += c;  // doubled, so that format_name() reads no placeholder
  }
  return absolute + '/' + path;
}

}  // namespace composer::util
