// The header of a safetensors file: what is accepted lies within the file, without holes, and can be written again.
#include "composer/formats/safetensors_header.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = fuzz::file_of(data, size);
  formats::SafetensorsHeader header;
  try {
    header = formats::read_safetensors_header(*file);
  } catch (const CheckpointError&) {
    return 0;
  }
  std::uint64_t at = 0;
  for (formats::TensorEntry& entry : header.tensors) {
    std::uint64_t bits = 0;
    fuzz::require(formats::tensor_bytes(entry.shape, formats::element_bits(entry.dtype), bits) && bits % 8 == 0);
    fuzz::require(entry.begin == at && entry.end == at + bits / 8);
    at = entry.end;
    entry.checksum = "xxh3:0123456789abcdef";
  }
  fuzz::require(header.data + at == size);

  std::string written;
  try {
    written = formats::make_safetensors_header(header.tensors, header.metadata);
  } catch (const ConfigError&) {
    return 0;
  }
  const auto again = formats::read_safetensors_header(*formats::bytes_in_memory(written + std::string(at, 'x')));
  fuzz::require(again.checksums && again.metadata == header.metadata && again.tensors.size() == header.tensors.size());
  return 0;
}
