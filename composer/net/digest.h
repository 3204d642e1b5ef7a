#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace composer::net {

// Digests in lower-case hexadecimal. The functions that take a file throw Error if it cannot be read.
std::string sha256(std::string_view text);
std::string sha256(const std::filesystem::path& file, std::uint64_t offset, std::uint64_t size);
std::string md5(std::string_view text);
std::string md5_of_file(const std::filesystem::path& file);

std::string hmac_sha256(std::string_view key, std::string_view text);  // 32 bytes
std::string hexadecimal(std::string_view bytes);
std::string base64(std::string_view bytes);

}  // namespace composer::net
