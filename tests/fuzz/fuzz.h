#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "composer/core/error.h"
#include "composer/formats/byte_source.h"

namespace composer::fuzz {

// The file that libFuzzer made of its bytes.
inline std::unique_ptr<formats::ByteSource> file_of(const std::uint8_t* data, std::size_t size) {
  return formats::bytes_in_memory(std::string(reinterpret_cast<const char*>(data), size), "input");
}

// What must hold of everything that was accepted.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace composer::fuzz
