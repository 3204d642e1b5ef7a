#pragma once
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "composer/formats/byte_source.h"
#include "composer/formats/pt_file.h"
#include "composer/formats/safetensors.h"
#include "composer/formats/zip_writer.h"
#include "tests/support/text.h"

namespace composer::test {

inline formats::Sink sink_to(std::string& bytes) {
  return [&bytes](const void* data, std::size_t size) { bytes.append(static_cast<const char*>(data), size); };
}

inline formats::PlacedSink placed_sink_to(std::string& bytes) {
  return [&bytes](std::uint64_t offset, const void* data, std::size_t size) {
    if (bytes.size() < offset + size) bytes.resize(offset + size);
    if (size > 0) std::memcpy(bytes.data() + offset, data, size);
  };
}

inline std::string safetensors_bytes(const formats::NamedTensors& tensors, const formats::Metadata& metadata = {}) {
  std::string bytes;
  formats::write_safetensors(tensors, metadata, placed_sink_to(bytes));
  return bytes;
}

// A file of somebody else's: this header, this data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

inline formats::SafetensorsFile open_safetensors(std::string bytes, formats::SafetensorsOptions options = {}) {
  return formats::SafetensorsFile(formats::bytes_in_memory(std::move(bytes)), options);
}

inline std::string pt_bytes(const formats::NamedTensors& tensors) {
  std::string bytes;
  formats::write_pt(tensors, sink_to(bytes));
  return bytes;
}

inline std::string zip_bytes(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string bytes;
  const formats::Sink sink = sink_to(bytes);
  formats::ZipWriter zip(sink);
  for (const auto& [name, data] : entries) zip.entry(name, data);
  zip.finish();
  return bytes;
}

inline formats::PtFile open_pt(std::string bytes, formats::PtOptions options = {}) {
  return formats::PtFile(formats::bytes_in_memory(std::move(bytes)), options);
}

}  // namespace composer::test
