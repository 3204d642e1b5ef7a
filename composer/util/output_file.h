#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "composer/util/own_descriptor.h"

namespace composer::util {

enum class FileMode : std::uint8_t { CREATE, APPEND, OVERWRITE };

// Who may write a file at the same time. ONE: a regular file is locked until it is closed, as by a FileLock, because
// what another one writes would be cut off when either of them cuts it. MANY: each only appends, or all write the same.
enum class Writers : std::uint8_t { ONE, MANY };

// A file that grows, unbuffered. `owner` begins the text of its errors.
class OutputFile {
 public:
  // Makes the folders that are missing. Throws ConfigError if the path cannot be written, if it exists and mode is
  // CREATE, or if it has one writer and somebody has its lock: then nothing has been changed. An appended file whose
  // last line was cut off begins a new one.
  OutputFile(std::string owner, std::string path, FileMode mode, Writers writers);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() = default;

  // All throw Error if the disk refuses, or in a forked child, which does not have the file.
  void write(std::string_view text);  // all of it, or nothing, unless somebody else has written behind the part
  // What is behind `from` becomes `text`; if the disk refuses that, it is `before`, which it was, as far as possible.
  void replace_end(std::int64_t from, std::string_view text, std::string_view before);
  std::int64_t size() const;    // bytes
  bool is_regular() const;      // no pipe or device
  bool is_removed() const;      // nothing that is written will be found, also not by /dev/stdout
  void cut(std::int64_t size);  // what is behind that is gone
  void sync();                  // returns when what was written would survive a loss of power
  void close();                 // again: does nothing

 private:
  [[noreturn]] void fail(int code) const;
  void open(FileMode mode);
  void lock(FileMode mode);
  void remove_partial(std::size_t written);
  std::string owner_, path_;
  OwnDescriptor descriptor_;
};

// Throws ConfigError: somebody has the lock of the file.
[[noreturn]] void fail_in_use(const std::string& owner, const std::string& path);

}  // namespace composer::util
