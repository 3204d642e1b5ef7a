#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "composer/util/own_descriptor.h"

namespace composer::util {

enum class FileMode : std::uint8_t { CREATE, APPEND, OVERWRITE };

// Who may write a file at the same time. ONE: a regular file is locked until it is closed, as by a FileLock, because if
// one writer cuts the file, it would remove what another has written. MANY: each writer only appends, or all write the
// same.
enum class Writers : std::uint8_t { ONE, MANY };

// A file that grows, unbuffered. `owner` begins the text of its errors.
class OutputFile {
 public:
  // Makes missing folders. Throws ConfigError if the path cannot be written, if it exists and mode is CREATE, or if
  // `writers` is ONE and another writer has the lock; nothing is changed then. If the last line of an appended file is
  // incomplete, a new line is begun.
  OutputFile(std::string owner, std::string path, FileMode mode, Writers writers);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() = default;

  // All throw Error for an I/O error, and in a forked child, which does not have the file.
  void write(std::string_view text);  // writes all or nothing, unless another program has appended to a part of it
  // Replaces what follows byte `from` by `text`. After an I/O error it restores `before`, the previous contents, as far
  // as possible.
  void replace_end(std::int64_t from, std::string_view text, std::string_view before);
  std::int64_t size() const;  // bytes
  bool is_regular() const;    // not a pipe or a device
  // Whether the file has lost its name, so that nobody will find what is written, not even by /dev/stdout.
  bool is_removed() const;
  void cut(std::int64_t size);  // removes what follows byte `size`
  void sync();                  // returns once everything written would survive a power loss
  void close();                 // again: does nothing

 private:
  [[noreturn]] void fail(int code) const;
  void open(FileMode mode);
  void lock(FileMode mode);
  void remove_partial(std::size_t written);
  std::string owner_, path_;
  OwnDescriptor descriptor_;
};

// Throws ConfigError, which says that another writer has the lock of the file.
[[noreturn]] void fail_in_use(const std::string& owner, const std::string& path);

}  // namespace composer::util
