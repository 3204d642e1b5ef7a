#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace composer::data::detail {

// "zstd", "zstd:7", "gz", "gz:1".
struct MdsCompression {
  std::string name;  // which is also the ending of the file
  int level = 0;
};

// Throws ConfigError, which begins with `who`, for what this library does not read and write: it says what does.
MdsCompression parse_mds_compression(const std::string& who, std::string_view text);

std::string mds_compressed(const MdsCompression& how, std::string_view bytes);
// Writes the decompressed file as a whole or not at all. Throws DataError unless it has exactly `bytes` bytes, and
// stops writing where it has more; Error if `to` cannot be written.
void mds_decompress(const MdsCompression& how, const std::filesystem::path& from, const std::filesystem::path& to,
                    std::uint64_t bytes);

}  // namespace composer::data::detail
