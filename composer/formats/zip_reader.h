#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace composer::formats {

class ByteSource;

struct ZipEntry {
  std::string name;
  std::uint64_t size = 0, stored = 0;  // bytes after decompression, and in the file
  std::uint64_t header = 0, data = 0;  // their offsets in the file
  std::uint32_t crc = 0;
  bool deflated = false;
};

// Reads the entries of a zip file, stored or deflated, with or without zip64. The constructor throws CheckpointError
// for an invalid directory: entries that overlap or exceed the file, duplicate names or names that lead out of a
// folder, a total size of more than `most_inflation` times the file's, encryption, or other compression methods.
class ZipReader {
 public:
  explicit ZipReader(const ByteSource& file, std::uint64_t most_inflation = 64);  // the file must outlive the reader

  const std::vector<ZipEntry>& entries() const { return entries_; }  // sorted by name
  bool has_crcs() const { return has_crcs_; }                        // if false, damage to the contents is not detected
  const ZipEntry* find(std::string_view name) const;
  // Reads entry.size bytes. Throws CheckpointError if they do not match their CRC. If the CRC of every entry is 0, none
  // was computed (torch.utils.serialization.config.save.compute_crc32), and none is checked.
  void read(const ZipEntry& entry, void* to) const;
  std::string read(const ZipEntry& entry) const;

 private:
  void read_directory(std::uint64_t at, std::uint64_t size, std::uint64_t count);
  void read_local_headers(std::uint64_t directory);
  void inflate(const ZipEntry& entry, unsigned char* to) const;

  const ByteSource& file_;
  std::vector<ZipEntry> entries_;
  bool has_crcs_ = false;
};

}  // namespace composer::formats
