#include "composer/loggers/mlflow_store.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cwctype>
#include <locale.h>

namespace composer::loggers {
namespace {

// The length in bytes of the UTF-8 character at the beginning of a text; 0 if there is none.
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

// Whether MLflow allows this UTF-8 character in a key: ASCII, or a letter or digit of any script.
bool is_allowed(std::string_view character) {
  const char c = character.front();
  if (character.size() == 1)
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("_-.: /").find(c) != std::string_view::npos;
  static const locale_t letters = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  constexpr std::array<unsigned, 5> kBits = {0, 0, 0x1F, 0x0F, 0x07};
  unsigned code = static_cast<unsigned char>(c) & kBits.at(character.size());
  for (const char next : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(next) & 0x3F);
  return letters != nullptr && ::iswalnum_l(static_cast<std::wint_t>(code), letters) != 0;
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
  constexpr std::size_t kLongest = 250;  // in characters
  std::string all;
  for (std::string_view rest = key; !rest.empty();) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (part.empty() || part == "." || part == "..") continue;
    if (!all.empty()) all += '/';
    const std::string valid = mlflow_text(part, kLongest);
    std::size_t bytes = 0;  // limited, because a part is the name of a file
    for (std::string_view left = valid; !left.empty();) {
      const std::string_view character = left.substr(0, character_at(left));
      left.remove_prefix(character.size());
      bytes += character.size();
      if (bytes > kLongest) break;
      if (is_allowed(character))
        all += character;
      else
        all += '_';
    }
  }
  all = mlflow_text(all, kLongest);
  while (!all.empty() && all.back() == '/') all.pop_back();  // the key may have been cut after a slash
  return all.empty() ? std::string("_") : all;
}

std::int64_t mlflow_time(double seconds) { return static_cast<std::int64_t>(std::floor(seconds * 1000)); }

}  // namespace composer::loggers
