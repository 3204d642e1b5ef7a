#include "composer/formats/json_reader.h"

#include <limits>
#include <utility>

#include "composer/core/error.h"
#include "composer/util/utf8.h"

namespace composer::formats {
namespace {

void append_utf8(std::string& out, std::uint32_t code) {
  const auto rest = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    rest(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    rest(6);
    rest(0);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    rest(12);
    rest(6);
    rest(0);
  }
}

}  // namespace

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 100;
  std::string out(text.substr(0, kMost));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return text.size() > kMost ? out + "..." : out;
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = util::utf8_length(text.substr(i));
    if (length == 0) throw ConfigError("a name or text to be written to a file is not UTF-8: ", shown(text));
    const char c = text[i];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += "0123456789abcdef"[c >> 4 & 15];
      out += "0123456789abcdef"[c & 15];
    } else {
      out += text.substr(i, length);
    }
    i += length;
  }
  return out + '"';
}

JsonReader::JsonReader(std::string_view text, std::string_view name, std::uint64_t offset)
    : text_(text), name_(name), offset_(offset) {}

void JsonReader::fail(std::string_view what) const {
  throw CheckpointError(name_, ": ", what, " at byte ", offset_ + at_);
}

void JsonReader::skip_spaces() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
    ++at_;
}

std::size_t JsonReader::position() {
  skip_spaces();
  return at_;
}

void JsonReader::expect(char character) {
  skip_spaces();
  if (at_ == text_.size() || text_[at_] != character) fail(join("expected ", character));
  ++at_;
}

void JsonReader::begin_object() {
  expect('{');
  first_ = true;
}

void JsonReader::begin_array() {
  expect('[');
  first_ = true;
}

bool JsonReader::next(char closing) {
  skip_spaces();
  const bool first = std::exchange(first_, false);
  if (at_ < text_.size() && text_[at_] == closing) {
    ++at_;
    return false;
  }
  if (!first) expect(',');
  return true;
}

bool JsonReader::next_key(std::string& key) {
  if (!next('}')) return false;
  key = string();
  expect(':');
  return true;
}

bool JsonReader::next_item() { return next(']'); }

std::string JsonReader::string() {
  expect('"');
  std::string out;
  for (;;) {
    if (at_ == text_.size()) fail("the text ends within a string");
    const char c = text_[at_];
    if (c == '"') break;
    if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
    if (c == '\\') {
      ++at_;
      escape(out);
    } else {
      utf8(out);
    }
  }
  ++at_;
  return out;
}

void JsonReader::utf8(std::string& out) {
  const std::size_t length = util::utf8_length(text_.substr(at_, 4));
  if (length == 0) fail("a string that is not UTF-8");
  out += text_.substr(at_, length);
  at_ += length;
}

std::uint32_t JsonReader::four_digits() {
  if (text_.size() - at_ < 4) fail("the text ends within a string");
  std::uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = text_[at_];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) fail("expected a hexadecimal digit");
    code = code * 16 + static_cast<std::uint32_t>(digit);
  }
  return code;
}

void JsonReader::escape(std::string& out) {
  if (at_ == text_.size()) fail("the text ends within a string");
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
  const char letter = text_[at_++];
  if (const auto known = kLetters.find(letter); known != std::string_view::npos) {
    out += kMeaning[known];
    return;
  }
  if (letter != 'u') fail("an unknown escape in a string");
  std::uint32_t code = four_digits();
  if (code >= 0xD800 && code < 0xDC00) {  // the first half of a surrogate pair
    if (text_.substr(at_, 2) != "\\u") fail("half a surrogate pair in a string");
    at_ += 2;
    const std::uint32_t low = four_digits();
    if (low < 0xDC00 || low >= 0xE000) fail("half a surrogate pair in a string");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code < 0xE000) {
    fail("half a surrogate pair in a string");
  }
  append_utf8(out, code);
}

std::int64_t JsonReader::integer() {
  skip_spaces();
  const auto digit = [&] { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; };
  if (!digit()) fail("expected an integer that is not negative");
  if (text_[at_] == '0') {
    ++at_;
    if (digit()) fail("a number that begins with 0");
    return 0;
  }
  std::int64_t value = 0;
  for (; digit(); ++at_) {
    const int next = text_[at_] - '0';
    if (value > (std::numeric_limits<std::int64_t>::max() - next) / 10) fail("a number beyond 2^63 - 1");
    value = value * 10 + next;
  }
  return value;
}

void JsonReader::null() {
  skip_spaces();
  for (const char letter : {'n', 'u', 'l', 'l'}) {
    if (at_ == text_.size() || text_[at_] != letter) fail("expected null");
    ++at_;
  }
}

void JsonReader::end() {
  skip_spaces();
  if (at_ != text_.size()) fail("extra text after the end");
}

}  // namespace composer::formats
