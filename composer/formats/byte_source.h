#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "composer/core/export.h"

namespace composer::formats {

// Random access to a known number of bytes. Thread-safe. Reads return copies, so data cannot change after it was
// checked, whatever happens to the file.
class COMPOSER_EXPORT ByteSource {
 public:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}
  virtual ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  virtual std::uint64_t size() const = 0;
  // Reads all `size` bytes, or throws CheckpointError. offset + size must be at most size().
  virtual void read(std::uint64_t offset, void* to, std::size_t size) const = 0;
  std::string read(std::uint64_t offset, std::size_t size) const;

  const std::string& name() const { return name_; }  // name of the file, for errors

 private:
  std::string name_;
};

// Opens a regular file. Throws CheckpointError if it is missing or cannot be opened.
COMPOSER_EXPORT std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path);
COMPOSER_EXPORT std::unique_ptr<ByteSource> bytes_in_memory(std::string bytes, std::string name = "bytes in memory");

}  // namespace composer::formats
