#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace composer::data::detail {

// The bytes of a file, one after another.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Up to `count` bytes; fewer only at the end of what is there. Throws DataError.
  virtual std::size_t read(void* to, std::size_t count) = 0;
  // No more bytes than this can come.
  virtual std::uint64_t at_most() const = 0;
};

// Decompresses if the name ends in .gz. Throws DataError if the file cannot be opened.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file);

}  // namespace composer::data::detail
