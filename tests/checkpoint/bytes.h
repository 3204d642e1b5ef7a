#pragma once
#include <cstdint>
#include <cstring>
#include <string>

#include "composer/checkpoint/byte_source.h"
#include "composer/checkpoint/safetensors.h"

namespace composer::test {

inline std::string safetensors_bytes(const formats::NamedTensors& tensors, const formats::Metadata& metadata = {}) {
  std::string bytes;
  formats::write_safetensors(tensors, metadata, [&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  });
  return bytes;
}

inline formats::SafetensorsFile open_safetensors(std::string bytes, formats::SafetensorsOptions options = {}) {
  return formats::SafetensorsFile(formats::bytes_in_memory(std::move(bytes)), options);
}

// A file of somebody else's: this header, this data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

}  // namespace composer::test
