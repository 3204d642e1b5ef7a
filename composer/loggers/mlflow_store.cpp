#include "composer/loggers/mlflow_store.h"

#include <algorithm>
#include <cmath>

namespace composer::loggers {
namespace {

// The length of the character of UTF-8 at the beginning of a text; 0 if there is none.
std::size_t character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80 ? 1 : first >= 0xF0 && first < 0xF5 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first >= 0x80 && (first < 0xC2 || first >= 0xF5)) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (byte(i) >> 6 != 2) return 0;
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
  if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

bool is_allowed(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("_-.: /").find(c) != std::string_view::npos;
}

}  // namespace

std::string mlflow_text(std::string_view text, std::size_t most) {
  std::string valid;
  for (std::size_t count = 0; !text.empty() && count < most; ++count) {
    const std::size_t length = character_at(text);
    if (length == 0)
      valid += '?';
    else
      valid += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return valid;
}

std::string mlflow_key(std::string_view key) {
  constexpr std::size_t kLongest = 250;  // characters
  std::string all;
  for (std::string_view rest = key; !rest.empty();) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (part.empty() || part == "." || part == "..") continue;
    if (!all.empty()) all += '/';
    for (const char c : mlflow_text(part, kLongest)) all += is_allowed(c) || (c & 0x80) != 0 ? c : '_';
  }
  all = mlflow_text(all, kLongest);
  while (!all.empty() && all.back() == '/') all.pop_back();  // where it was cut
  return all.empty() ? std::string("_") : all;
}

std::int64_t mlflow_time(double seconds) { return std::llround(seconds * 1000); }

}  // namespace composer::loggers
