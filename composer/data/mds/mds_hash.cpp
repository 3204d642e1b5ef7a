#include "composer/data/mds/mds_hash.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <openssl/evp.h>

#define XXH_INLINE_ALL  // keeps the symbols of XXH inside of this file
#include <xxhash.h>

#include "composer/core/error.h"
#include "composer/data/byte_stream.h"
#include "composer/net/digest.h"

namespace composer::data::detail {
namespace {

constexpr std::pair<std::string_view, const char*> kOpenSsl[] = {
    {"md5", "MD5"},           {"sha1", "SHA1"},         {"sha224", "SHA224"},      {"sha256", "SHA256"},
    {"sha384", "SHA384"},     {"sha512", "SHA512"},     {"sha3_224", "SHA3-224"},  {"sha3_256", "SHA3-256"},
    {"sha3_384", "SHA3-384"}, {"sha3_512", "SHA3-512"}, {"blake2b", "BLAKE2B512"}, {"blake2s", "BLAKE2S256"}};
constexpr std::string_view kXxh[] = {"xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128"};

const char* openssl_name(std::string_view algorithm) {
  for (const auto& [name, theirs] : kOpenSsl)
    if (name == algorithm) return theirs;
  return nullptr;
}

class RunningHash {
 public:
  virtual ~RunningHash() = default;
  virtual void update(const void* data, std::size_t size) = 0;
  virtual std::string digest() = 0;  // bytes
};

class OpenSslHash final : public RunningHash {
 public:
  explicit OpenSslHash(const char* name) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_get_digestbyname(name), nullptr) != 1)
      throw ConfigError("OpenSSL does not offer ", name);
  }
  void update(const void* data, std::size_t size) override { EVP_DigestUpdate(context_.get(), data, size); }
  std::string digest() override {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), bytes, &size);
    return {reinterpret_cast<const char*>(bytes), size};
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

class Xxh final : public RunningHash {
 public:
  explicit Xxh(std::string_view algorithm)
      : bits_(algorithm == "xxh32"         ? 32
              : algorithm.ends_with("128") ? 128
                                           : 64),
        is_3_(algorithm == "xxh3_64") {
    XXH32_reset(&small_, 0);
    XXH64_reset(&plain_, 0);
    bits_ == 128 ? XXH3_128bits_reset(&state_) : XXH3_64bits_reset(&state_);
  }
  void update(const void* data, std::size_t size) override {
    if (bits_ == 128)
      XXH3_128bits_update(&state_, data, size);
    else if (is_3_)
      XXH3_64bits_update(&state_, data, size);
    else if (bits_ == 64)
      XXH64_update(&plain_, data, size);
    else
      XXH32_update(&small_, data, size);
  }
  std::string digest() override {
    if (bits_ == 128) {
      const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
      return big_endian(hash.high64, 8) + big_endian(hash.low64, 8);
    }
    if (is_3_) return big_endian(XXH3_64bits_digest(&state_), 8);
    return bits_ == 64 ? big_endian(XXH64_digest(&plain_), 8) : big_endian(XXH32_digest(&small_), 4);
  }

 private:
  static std::string big_endian(std::uint64_t value, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i) & 255);
    return text;
  }

  int bits_;
  bool is_3_;
  XXH32_state_t small_{};
  XXH64_state_t plain_{};
  alignas(64) XXH3_state_t state_{};
};

std::unique_ptr<RunningHash> running_hash(std::string_view algorithm) {
  if (const char* name = openssl_name(algorithm)) return std::make_unique<OpenSslHash>(name);
  return std::make_unique<Xxh>(algorithm);
}

}  // namespace

bool is_mds_hash(std::string_view algorithm) {
  return openssl_name(algorithm) != nullptr || std::ranges::find(kXxh, algorithm) != std::end(kXxh);
}

std::string mds_hash(std::string_view algorithm, std::string_view bytes) {
  const auto hash = running_hash(algorithm);
  hash->update(bytes.data(), bytes.size());
  return net::hexadecimal(hash->digest());
}

std::string mds_hash_of_file(std::string_view algorithm, const std::filesystem::path& file) {
  const auto hash = running_hash(algorithm);
  const auto in = open_raw_bytes(file);
  std::vector<char> piece(1 << 20);
  while (const std::size_t got = in->read(piece.data(), piece.size())) hash->update(piece.data(), got);
  return net::hexadecimal(hash->digest());
}

}  // namespace composer::data::detail
