#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"

namespace composer::formats {

class ByteSource;

using Metadata = std::map<std::string, std::string>;

inline constexpr std::size_t kMostDimensions = 64;  // of a tensor, as in libtorch

// One tensor of a safetensors file, as described by its header.
struct TensorEntry {
  std::string name, dtype;  // dtype: such as "F32"; known to element_bits()
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // position of the bytes, relative to the end of the header
  std::string checksum;              // see util::checksum_text; empty if the file has none
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their bytes, without gaps
  Metadata metadata;                 // without the keys of the checksums
  bool checksums = false;            // the header's checksum was verified, and every tensor has a checksum
  std::string checksum;              // the header's; it covers the tensors' checksums, and thereby every byte
  std::uint64_t data = 0;            // position of the first tensor in the file
};

// Reads the header. Throws CheckpointError with the file, the tensor and the byte for any defect of the header or of
// the file's length, and UnsupportedError for an unknown dtype or an unknown version of the checksums. The result can
// be trusted: names are unique, tensors are adjacent and fill the file, and their sizes match shape and dtype.
COMPOSER_EXPORT SafetensorsHeader read_safetensors_header(const ByteSource& file);

// Returns the bytes before the tensors, with checksums. The entries must have checksum, begin and end. Throws
// ConfigError for a duplicate name, and for a name that the format cannot represent.
COMPOSER_EXPORT std::string make_safetensors_header(const std::vector<TensorEntry>& tensors, const Metadata& metadata);
// The header's checksum, which is a part of the result of make_safetensors_header().
COMPOSER_EXPORT std::string_view own_checksum(std::string_view made);

// Bits of one element; 0 for an unknown dtype.
COMPOSER_EXPORT std::size_t element_bits(std::string_view dtype);
// Bytes of one element. 0 also for F4, F6_E2M3 and F6_E3M2, which libtorch does not have: such tensors are listed, but
// cannot be read.
COMPOSER_EXPORT std::size_t element_bytes(std::string_view dtype);

// Computes the size of a tensor, in the unit of `element` (bits or bytes). Returns false if it is 2^63 or more; for
// this check, dimensions of 0 count as 1.
COMPOSER_EXPORT bool tensor_bytes(const std::vector<std::int64_t>& shape, std::size_t element, std::uint64_t& bytes);

}  // namespace composer::formats
