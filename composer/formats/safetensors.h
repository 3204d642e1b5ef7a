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
  bool require_checksums = false;  // a file without them is an error; else it is read, and checksums() tells
};

// Reads a safetensors file, ours or anybody's. What is wrong with it is a CheckpointError: with the header, when it is
// opened; with a tensor's bytes, when that is read. Several threads may read at once.
class COMPOSER_EXPORT SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path, SafetensorsOptions options = {});
  explicit SafetensorsFile(std::unique_ptr<ByteSource> source, SafetensorsOptions options = {});
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& name() const;  // of the file, for texts
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }
  bool checksums() const { return header_.checksums; }  // every byte of the file is verified when it is read
  // The header's own, which by those of the tensors covers every byte; empty if the file has none.
  const std::string& checksum() const { return header_.checksum; }

  bool has(std::string_view name) const { return find(name) != nullptr; }
  // A new tensor on the host. CheckpointError if there is none of that name.
  at::Tensor read(std::string_view name) const;
  at::Tensor read(const TensorEntry& entry) const;
  NamedTensors read_all() const;  // in the file's order; read by several threads

 private:
  const TensorEntry* find(std::string_view name) const;

  std::unique_ptr<ByteSource> source_;
  SafetensorsHeader header_;
  std::vector<std::size_t> by_name_;  // of the tensors, sorted
};

// Writes a safetensors file with checksums (docs/checkpoint-format.md). The tensors may lie on any device and in any
// layout; they are written contiguous, those with larger elements first, else as given, and never all copied at once.
// Each byte is read once: the header comes last, when the checksums are known. Returns the file's checksum(). Throws
// ConfigError for a duplicate name, a sparse tensor or a dtype that the format lacks, before anything is written. A
// tensor must not change meanwhile.
COMPOSER_EXPORT std::string write_safetensors(const NamedTensors& tensors, const Metadata& metadata,
                                              const PlacedSink& sink);

// Throws ConfigError for what write_safetensors() would reject. Reads no tensor and writes nothing.
COMPOSER_EXPORT void check_safetensors(const NamedTensors& tensors, const Metadata& metadata);

// To a file that appears whole or not at all. Makes the folders that are missing. Error if the disk refuses.
COMPOSER_EXPORT void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                                      const Metadata& metadata = {});

}  // namespace composer::formats
