#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace composer::formats {

// Reads JSON of a known form, token by token: the caller requests the token that must come next, and anything else is a
// CheckpointError with its byte. Never recurses and stores nothing, so depth and size of the text do not matter.
// Accepts only the numbers 0 to 2^63 - 1, written without sign, point or exponent.
class JsonReader {
 public:
  // Errors begin with `name`; `offset` is the position of the text in the file. The text must outlive the reader.
  JsonReader(std::string_view text, std::string_view name, std::uint64_t offset = 0);

  // {: after begin_object(), each next_key() is true with the key, and its value must be read; false after the }.
  void begin_object();
  bool next_key(std::string& key);
  // [: the same.
  void begin_array();
  bool next_item();
  std::string string();
  std::int64_t integer();
  void null();
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
  bool first_ = false;  // nothing was read yet in the innermost object or array
};

// Text from a file, made safe for an error message: at most 100 bytes, without control characters.
std::string shown(std::string_view text);

// Returns a JSON string, in quotes. Throws ConfigError if it is not UTF-8.
std::string json_quoted(std::string_view text);

}  // namespace composer::formats
