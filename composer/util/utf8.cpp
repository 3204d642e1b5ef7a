#include "composer/util/utf8.h"

namespace composer::util {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

// The length of the character that this lead byte begins; 0 if it begins none.
std::size_t length_by_lead(unsigned lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

// Rejects overlong encodings, surrogates, and code points beyond the last one.
bool may_be_second(unsigned lead, unsigned byte) {
  const unsigned least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return byte >= least && byte <= most;
}

// The number of leading bytes that could begin a character, at least 1.
std::size_t beginning(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  const std::size_t most = length_by_lead(lead);
  std::size_t length = 1;
  while (length < most && length < text.size() &&
         (length == 1 ? may_be_second(lead, byte_at(text, 1)) : (byte_at(text, length) & 0xC0) == 0x80))
    ++length;
  return length;
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const std::size_t length = length_by_lead(byte_at(text, 0));
  return length == beginning(text) ? length : 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text), read = length == 0 ? beginning(text) : length;
    valid += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    text.remove_prefix(read);
  }
  return valid;
}

}  // namespace composer::util
