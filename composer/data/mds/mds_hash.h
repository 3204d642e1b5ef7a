#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace composer::data::detail {

constexpr const char* kMdsHashes =
    "md5, sha1, sha224, sha256, sha384, sha512, sha3_224, sha3_256, sha3_384, sha3_512, blake2b, blake2s, xxh32, "
    "xxh64, "
    "xxh128, xxh3_64 and xxh3_128";
bool is_mds_hash(std::string_view algorithm);

// Digests in lower-case hexadecimal. `algorithm` is known. The function of a file throws DataError if it cannot be
// read.
std::string mds_hash(std::string_view algorithm, std::string_view bytes);
std::string mds_hash_of_file(std::string_view algorithm, const std::filesystem::path& file);

}  // namespace composer::data::detail
