#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/formats/named_tensors.h"
#include "composer/formats/safetensors_header.h"
#include "composer/formats/sink.h"

namespace composer::formats {

class ByteSource;

struct SafetensorsOptions {
  bool require_checksums = false;  // whether a file without checksums is an error
};

// Reads any safetensors file. The constructor throws CheckpointError for an invalid or damaged header; reading a tensor
// throws it for damaged bytes. Thread-safe.
class COMPOSER_EXPORT SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path, SafetensorsOptions options = {});
  explicit SafetensorsFile(std::unique_ptr<ByteSource> source, SafetensorsOptions options = {});
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& name() const;  // name of the file, for messages
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }
  bool checksums() const { return header_.checksums; }  // whether every byte of the file is verified when read
  // The header's checksum. It covers the tensors' checksums, and thereby every byte of the file. Empty if the file has
  // none.
  const std::string& checksum() const { return header_.checksum; }

  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Returns a new tensor on the host. Throws CheckpointError for a missing name, UnsupportedError for a dtype that
  // libtorch does not have: F4, F6_E2M3 or F6_E3M2.
  at::Tensor read(std::string_view name) const;
  at::Tensor read(const TensorEntry& entry) const;
  // Reads all tensors in the file's order, with several threads. allow_unknown: skips tensors whose dtype libtorch does
  // not have.
  NamedTensors read_all(bool allow_unknown = false) const;

 private:
  const TensorEntry* find(std::string_view name) const;

  std::unique_ptr<ByteSource> source_;
  SafetensorsHeader header_;
  std::vector<std::size_t> by_name_;  // indices of the tensors, sorted by name
};

// Writes a safetensors file with checksums (docs/internals/checkpoint-format.md). The tensors may have any device and
// memory layout, and must not change meanwhile. They are written contiguously, larger elements first, otherwise in the
// given order, and are never all copied at once. Each byte is read once: the header is written last, when the checksums
// are known. Returns the file's checksum(). Throws ConfigError, before anything is written, for a duplicate name, a
// sparse tensor or a dtype that the format does not have.
COMPOSER_EXPORT std::string write_safetensors(const NamedTensors& tensors, const Metadata& metadata,
                                              const PlacedSink& sink);

// Throws ConfigError for what write_safetensors() would reject. Reads no tensor and writes nothing.
COMPOSER_EXPORT void check_safetensors(const NamedTensors& tensors, const Metadata& metadata);

// Like write_safetensors(), to a file that is written atomically. Creates missing folders. Throws Error on an I/O
// error.
COMPOSER_EXPORT void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                                      const Metadata& metadata = {});

}  // namespace composer::formats
