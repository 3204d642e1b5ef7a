#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"

namespace composer::formats {

class ByteSource;

struct ZipEntry {
  std::string name;
  std::uint64_t size = 0, stored = 0;  // bytes as they come out, and in the file
  std::uint64_t header = 0, data = 0;  // where in the file they begin
  std::uint32_t crc = 0;
  bool deflated = false;
};

// The entries of a zip file, stored or deflated, zip64 or not. Everything that is wrong with the lists is a
// CheckpointError when it is opened: entries that overlap or leave the file, names that are there twice or would lead
// out of a folder, what takes more than 64 times the file's size, encryption and other methods.
class COMPOSER_EXPORT ZipReader {
 public:
  explicit ZipReader(const ByteSource& file);  // must outlive the reader

  const std::vector<ZipEntry>& entries() const { return entries_; }  // by name
  const ZipEntry* find(std::string_view name) const;
  // entry.size bytes. CheckpointError if they do not fit their CRC.
  void read(const ZipEntry& entry, void* to) const;
  std::string read(const ZipEntry& entry) const;

 private:
  void read_directory(std::uint64_t at, std::uint64_t size, std::uint64_t count);
  void read_local_headers(std::uint64_t directory);
  void inflate(const ZipEntry& entry, unsigned char* to) const;

  const ByteSource& file_;
  std::vector<ZipEntry> entries_;
};

}  // namespace composer::formats
