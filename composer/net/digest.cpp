#include "composer/net/digest.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <unistd.h>
#include <vector>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "composer/core/error.h"

namespace composer::net {
namespace {

class Hash {
 public:
  explicit Hash(const EVP_MD* kind) : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), kind, nullptr) != 1)
      throw Error("OpenSSL does not compute ", EVP_MD_get0_name(kind));
  }
  void update(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string text() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), bytes.data(), &size);
    return hexadecimal({reinterpret_cast<const char*>(bytes.data()), size});
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

std::string of_file(const EVP_MD* kind, const std::filesystem::path& path, std::uint64_t offset,
                    std::optional<std::uint64_t> size) {
  struct File {
    int number;
    ~File() { ::close(number); }
  };
  const int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (number < 0) throw Error(path.string(), ": cannot be read: ", std::strerror(errno));
  const File file{number};
  Hash hash(kind);
  std::vector<char> piece(1 << 20);
  for (std::uint64_t done = 0; !size || done < *size;) {
    const std::size_t most = size ? std::min<std::uint64_t>(piece.size(), *size - done) : piece.size();
    const ssize_t got = ::pread(file.number, piece.data(), most, static_cast<off_t>(offset + done));
    if (got < 0) throw Error(path.string(), ": cannot be read: ", std::strerror(errno));
    if (got == 0 && !size) break;
    if (got == 0) throw Error(path.string(), ": became shorter while it was read");
    hash.update({piece.data(), static_cast<std::size_t>(got)});
    done += static_cast<std::uint64_t>(got);
  }
  return hash.text();
}

}  // namespace

std::string sha256(std::string_view text) {
  Hash hash(EVP_sha256());
  hash.update(text);
  return hash.text();
}

std::string sha256(const std::filesystem::path& file, std::uint64_t offset, std::uint64_t size) {
  return of_file(EVP_sha256(), file, offset, size);
}

std::string md5(std::string_view text) {
  Hash hash(EVP_md5());
  hash.update(text);
  return hash.text();
}

std::string md5_of_file(const std::filesystem::path& file) { return of_file(EVP_md5(), file, 0, {}); }

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), bytes.data(), &size);
  return {reinterpret_cast<const char*>(bytes.data()), size};
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char c : bytes) text.append({kDigits[c >> 4], kDigits[c & 15]});
  return text;
}

std::string base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // one more for the terminating zero
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

}  // namespace composer::net
