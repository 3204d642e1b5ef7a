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

// One tensor of a safetensors file, as its header says it.
struct TensorEntry {
  std::string name, dtype;  // "F32"; one of those that tensor_bytes() knows
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // of its bytes, from the end of the header
  std::string checksum;              // of its bytes, as util::checksum_text; empty if the file has none
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // as their bytes follow each other, without holes
  Metadata metadata;                 // without the keys of the checksums
  bool checksums = false;            // the header's own was verified, and every tensor has one
  std::string checksum;              // the header's own, which by the tensors' covers every byte of the file
  std::uint64_t data = 0;            // where in the file the tensors begin
};

// Everything that can be wrong with the header or the file's length is a CheckpointError that names the file, the
// tensor and the byte. What is returned can be trusted: names are unique, tensors lie one behind the other and fill the
// file, shape and dtype give their size.
COMPOSER_EXPORT SafetensorsHeader read_safetensors_header(const ByteSource& file);

// The bytes that come before the tensors, with checksums: the tensors' must be set, and their begin and end. Throws
// ConfigError for a name that is there twice or that the format cannot hold.
COMPOSER_EXPORT std::string make_safetensors_header(const std::vector<TensorEntry>& tensors, const Metadata& metadata);
// The header's own checksum, in what make_safetensors_header() has made.
COMPOSER_EXPORT std::string_view own_checksum(std::string_view made);

// Bytes of one element, 0 if the format has no such dtype or this version does not know it.
COMPOSER_EXPORT std::size_t element_bytes(std::string_view dtype);

// Bytes of a tensor; false if they are 2^63 or more, counting dimensions of 0 as 1.
COMPOSER_EXPORT bool tensor_bytes(const std::vector<std::int64_t>& shape, std::size_t element, std::uint64_t& bytes);

}  // namespace composer::formats
