#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace composer::formats {

// Reads JSON of a known structure, token by token: the caller requests the token that must come next, and any other one
// is a CheckpointError with its byte. It never recurses and stores nothing, so depth and size of the text do not
// matter. The only numbers that it accepts are 0 to 2^63 - 1, written without sign, point or exponent.
class JsonReader {
 public:
  // Errors begin with `name`; `offset` is the position of the text in the file. The text must outlive the reader.
  JsonReader(std::string_view text, std::string_view name, std::uint64_t offset = 0);

  // Reads "{". After it, each call of next_key() returns true with a key, whose value must then be read, and false
  // after "}".
  void begin_object();
  bool next_key(std::string& key);
  // Reads "[". After it, each call of next_item() returns true if another item must be read, and false after "]".
  void begin_array();
  bool next_item();
  std::string string();
  std::int64_t integer();
  void null();
  void end();  // throws unless only spaces follow

  std::size_t position();  // position of the next token in the text
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
  bool first_ = false;  // nothing has been read yet in the innermost object or array
};

// Text from a file, made safe for an error message: at most 100 bytes, without control characters.
std::string shown(std::string_view text);

// Returns a JSON string, in quotes. Throws ConfigError if it is not UTF-8.
std::string json_quoted(std::string_view text);

}  // namespace composer::formats
