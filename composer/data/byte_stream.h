#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace composer::data::detail {

// Reads the bytes of a file in order.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Reads up to `count` bytes; fewer only at the end of the data. Throws DataError.
  virtual std::size_t read(void* to, std::size_t count) = 0;
  // Upper limit of the number of bytes.
  virtual std::uint64_t at_most() const = 0;
};

// Decompresses if the name ends in .gz. Throws DataError if the file cannot be opened.
std::unique_ptr<ByteStream> open_bytes(const std::filesystem::path& file);
// Never decompresses.
std::unique_ptr<ByteStream> open_raw_bytes(const std::filesystem::path& file);

}  // namespace composer::data::detail
