#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "composer/core/export.h"

namespace composer::formats {

// Reads JSON of a known form, token by token: the caller asks for what must come next, and everything else is a
// CheckpointError with the byte at which it stands. It never recurses and keeps nothing, so that depth and size of what
// it is given do not matter. Of numbers it knows those from 0 to 2^63 - 1, written without sign, point or exponent.
class COMPOSER_EXPORT JsonReader {
 public:
  // `name` begins the errors' texts; `offset` is where the text stands in the file. The text must outlive the reader.
  JsonReader(std::string_view text, std::string_view name, std::uint64_t offset = 0);

  // {: after begin_object(), each next_key() is true with the key, and its value must be read; false after the }.
  void begin_object();
  bool next_key(std::string& key);
  // [: the same.
  void begin_array();
  bool next_item();
  std::string string();
  std::int64_t integer();
  void end();  // nothing but spaces may follow

  std::size_t position();  // in the text, of the next token
  [[noreturn]] void fail(std::string_view what) const;

 private:
  void skip_spaces();
  void expect(char character);
  bool next(char closing);
  void escape(std::string& out);
  std::uint32_t four_digits();
  void utf8(std::string& out);

  std::string_view text_, name_;
  std::uint64_t offset_;
  std::size_t at_ = 0;
  bool first_ = false;  // in the innermost object or array, nothing was read yet
};

// The length of the character that begins `text` if that is valid UTF-8, else 0.
COMPOSER_EXPORT std::size_t utf8_length(std::string_view text);

// For an error's text: what a file may have chosen, at most 100 bytes of it and no control characters.
COMPOSER_EXPORT std::string shown(std::string_view text);

// As a JSON string, in quotes. Throws ConfigError if it is not UTF-8.
COMPOSER_EXPORT std::string json_quoted(std::string_view text);

}  // namespace composer::formats
