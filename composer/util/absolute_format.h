#pragma once
#include <filesystem>
#include <string>

namespace composer::util {

// A path with placeholders, for format_name(), as an absolute one, so that it stays where it is when the program
// changes its working directory. An empty one stays empty.
inline std::string absolute_format(const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  std::string absolute;
  for (const char c : std::filesystem::current_path().string()) {
    absolute += c;
    if (c == '{' || c == '}') absolute += c;  // no placeholder
  }
  return absolute + '/' + path;
}

}  // namespace composer::util
