#include "composer/util/sha256.h"

#include <array>

#include <openssl/evp.h>

#include "composer/core/error.h"

namespace composer::util {

std::string sha256(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), sum.data(), &size, EVP_sha256(), nullptr) != 1)
    throw Error("OpenSSL cannot compute a SHA-256");
  std::string text;
  for (unsigned i = 0; i < size; ++i) (text += "0123456789abcdef"[sum[i] >> 4]) += "0123456789abcdef"[sum[i] & 15];
  return text;
}

}  // namespace composer::util
