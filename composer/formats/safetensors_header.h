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

inline constexpr std::size_t kMostDimensions = 64;  // of a tensor; libtorch's own bound

// One tensor of a safetensors file, as described by its header.
struct TensorEntry {
  std::string name, dtype;  // "F32"; one of those that element_bits() knows
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // position of its bytes after the header
  std::string checksum;              // of its bytes, see util::checksum_text; empty if the file has none
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their bytes, without holes
  Metadata metadata;                 // without the keys of the checksums
  bool checksums = false;            // the header's checksum was verified, and every tensor has one
  std::string checksum;              // the header's, which covers those of the tensors and so every byte
  std::uint64_t data = 0;            // position in the file of the first tensor
};

// Reads the header. Throws CheckpointError with the file, the tensor and the byte for any defect of the header or of
// the file's length, and UnsupportedError for a dtype or a version of our checksums that this version does not know.
// The result can be trusted: names are unique, tensors are adjacent and fill the file, and their sizes match shape and
// dtype.
COMPOSER_EXPORT SafetensorsHeader read_safetensors_header(const ByteSource& file);

// Returns the bytes before the tensors, with checksums. Requires the tensors' checksum, begin and end. Throws
// ConfigError for a duplicate name or one that the format cannot represent.
COMPOSER_EXPORT std::string make_safetensors_header(const std::vector<TensorEntry>& tensors, const Metadata& metadata);
// The header's checksum in a result of make_safetensors_header().
COMPOSER_EXPORT std::string_view own_checksum(std::string_view made);

// Bits of one element; 0 for a dtype that is unknown to this version.
COMPOSER_EXPORT std::size_t element_bits(std::string_view dtype);
// The same in bytes; 0 also for F4, F6_E2M3 and F6_E3M2, of which libtorch has no tensors: they are listed, not read.
COMPOSER_EXPORT std::size_t element_bytes(std::string_view dtype);

// Computes the bytes of a tensor, or its bits if `element` is in bits. Returns false if they are 2^63 or more, counting
// dimensions of 0 as 1.
COMPOSER_EXPORT bool tensor_bytes(const std::vector<std::int64_t>& shape, std::size_t element, std::uint64_t& bytes);

}  // namespace composer::formats
