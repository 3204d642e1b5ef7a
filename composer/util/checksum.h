#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/export.h"

namespace composer::util {

// XXH3 (64 bits) of bytes given piece by piece. It detects damage, but not forgery.
class COMPOSER_EXPORT Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void update(const void* data, std::size_t size);
  std::uint64_t value() const;
  std::string text() const;  // as written in files: "xxh3:" and 16 hexadecimal digits in lower case

 private:
  struct State;
  std::unique_ptr<State> state_;
};

COMPOSER_EXPORT std::string checksum_text(std::uint64_t value);

}  // namespace composer::util
