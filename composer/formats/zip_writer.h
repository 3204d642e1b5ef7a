#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "composer/formats/sink.h"

namespace composer::formats {

// Writes a zip file of stored entries whose data is aligned to 64 bytes, for torch.load(mmap=True).
class ZipWriter {
 public:
  explicit ZipWriter(const Sink& sink) : sink_(sink) {}

  void begin(std::string_view name);
  void write(const void* data, std::size_t size);
  void end();
  void finish();

  void entry(std::string_view name, std::string_view data);  // begin(), write() and end() for a whole entry

 private:
  void out(const void* data, std::size_t size);

  const Sink& sink_;
  std::uint64_t at_ = 0, header_ = 0, data_ = 0, count_ = 0;
  std::uint32_t crc_ = 0;
  std::string name_, directory_;
};

}  // namespace composer::formats
