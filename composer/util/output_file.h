#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace composer::util {

enum class FileMode : std::uint8_t { CREATE, APPEND, OVERWRITE };

// A file that grows, unbuffered. `owner` begins the text of its errors. A regular file is locked until it is closed, as
// by a FileLock: another OutputFile of it would be cut off when either of them is cut.
class OutputFile {
 public:
  // Makes the folders that are missing. Throws ConfigError if the path cannot be written, if it exists and mode is
  // CREATE, or if somebody has its lock: then nothing has been changed. An appended file whose last line was cut off
  // begins a new one.
  OutputFile(std::string owner, std::string path, FileMode mode);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() = default;

  // All throw Error if the disk refuses.
  void write(std::string_view text);
  std::int64_t size() const;    // bytes
  bool is_regular() const;      // no pipe or device
  bool is_removed() const;      // nothing that is written will be found
  void cut(std::int64_t size);  // what is behind that is gone
  void sync();                  // returns when what was written would survive a loss of power
  void close();                 // again: does nothing

 private:
  [[noreturn]] void fail(int code) const;
  void open(FileMode mode);
  void lock(FileMode mode);
  struct Descriptor {
    ~Descriptor();
    int number = -1;
  };
  std::string owner_, path_;
  Descriptor descriptor_;
};

// Throws ConfigError: somebody has the lock of the file.
[[noreturn]] void fail_in_use(const std::string& owner, const std::string& path);

}  // namespace composer::util
