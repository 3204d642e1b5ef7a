#include "composer/loggers/terminal.h"

#include <chrono>
#include <cstdint>
#include <unistd.h>

#include <sys/ioctl.h>

#include "composer/util/environment.h"

namespace composer::loggers {
namespace {

int terminal_columns(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Removes the first character from the text and returns it. A byte that begins no UTF-8 character is returned alone.
std::string_view take_character(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text.front());
  std::size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i)
    if (i >= text.size() || (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) length = i;
  const std::string_view character = text.substr(0, length);
  text.remove_prefix(length);
  return character;
}

int columns_of_character(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return lead >= ' ' && lead != 0x7F ? 1 : 0;
  std::uint32_t code = lead & (0xFFU >> (character.size() + 1));
  for (const char c : character.substr(1)) code = code << 6U | (static_cast<unsigned char>(c) & 0x3FU);
  const bool control = code < 0xA0, combining = code >= 0x300 && code < 0x370;
  if (control || combining || code == 0x200B || (code >= 0xFE00 && code <= 0xFE0F)) return 0;
  const bool wide = (code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0xA4CF) ||
                    (code >= 0xAC00 && code <= 0xD7A3) || (code >= 0xF900 && code <= 0xFAFF) ||
                    (code >= 0xFE30 && code <= 0xFE6F) || (code >= 0xFF00 && code <= 0xFF60) ||
                    (code >= 0x1F300 && code <= 0x1FAFF) || (code >= 0x20000 && code <= 0x3FFFD);
  return wide ? 2 : 1;
}

bool is_ascii(std::string_view character) {
  return character.size() == 1 && static_cast<unsigned char>(character.front()) < 0x80;
}

}  // namespace

Terminal Terminal::of(const TextStream& stream) {
  Terminal terminal;
  const int descriptor = stream.descriptor();
  terminal.interactive = descriptor >= 0 && isatty(descriptor) == 1 && environment("TERM") != "dumb";
  terminal.utf8 = environment_is_utf8();
  terminal.colors = terminal.interactive && environment("NO_COLOR").empty();
  terminal.columns = [descriptor] { return terminal_columns(descriptor); };
  terminal.clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  return terminal;
}

int columns_of(std::string_view text) {
  int columns = 0;
  while (!text.empty()) columns += columns_of_character(take_character(text));
  return columns;
}

std::string printable(std::string_view text, bool utf8, int columns) {
  std::string kept;
  while (!text.empty()) {
    const std::string_view character = take_character(text);
    const bool shown = utf8 ? is_ascii(character) || character.size() > 1 : is_ascii(character);
    const int width = shown ? columns_of_character(character) : 1;
    if (width > columns) break;
    columns -= width;
    if (!shown)
      kept += '?';
    else if (width > 0 || character.size() > 1)
      kept += character;
  }
  return kept;
}

}  // namespace composer::loggers
