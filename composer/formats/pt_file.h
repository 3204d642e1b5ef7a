#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/formats/named_tensors.h"
#include "composer/formats/sink.h"

namespace composer::formats {

class ByteSource;

struct PtOptions {
  bool allow_unknown = false;  // skips classes and functions that weights do not need, and tensors of an unknown dtype
};

// Describes a tensor of a PtFile.
struct PtEntry {
  std::string name, dtype;  // "F32", as in safetensors, or "C128"
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

// Reads a file written by torch.save: a state_dict, or nested dicts and lists of tensors, whose keys are joined by
// dots. Also reads modules with their parameters and buffers, written in C++ or by torch.jit.save. If several tensors
// would get the same name, they are called "NAME [1]", "NAME [2]" and so on. Throws CheckpointError for an invalid or
// damaged file, UnsupportedError for one with contents that this version does not read. Reading a tensor verifies the
// CRC of all its bytes. Tensors that share memory in the file share it here. Read from one thread at a time.
class COMPOSER_EXPORT PtFile {
 public:
  explicit PtFile(const std::filesystem::path& path, PtOptions options = {});
  explicit PtFile(std::unique_ptr<ByteSource> source, PtOptions options = {});
  ~PtFile();
  PtFile(PtFile&&) noexcept;
  PtFile& operator=(PtFile&&) noexcept;

  const std::vector<std::string>& names() const;  // in the file's order
  bool has_key(std::string_view key) const;       // whether the dict in the file has this key, with any value
  std::vector<PtEntry> tensors() const;           // describes the tensors without reading them
  bool checksums() const;                         // whether every byte is verified when read, because the file has CRCs
  at::Tensor read(std::string_view name) const;   // throws CheckpointError for a missing name
  NamedTensors read_all() const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

// Whether the first bytes are those of torch.save. Also true for files of PyTorch before 1.6, which PtFile rejects with
// a message that says so.
COMPOSER_EXPORT bool is_pt_file(const ByteSource& file);

// Reads every byte of such a file, including bytes that belong to no tensor or are unknown to this version. Returns one
// line for each entry that does not match its CRC.
COMPOSER_EXPORT std::vector<std::string> damaged_entries(const ByteSource& file);

// Writes a file that torch.load(weights_only=True) reads as a state_dict, also with mmap=True. Tensors that share
// memory and dtype are written once, all others contiguously. Throws ConfigError for an unsupported dtype.
COMPOSER_EXPORT void write_pt(const NamedTensors& tensors, const Sink& sink);

// Like write_pt(), to a file that is written atomically. Creates missing folders. Throws Error on an I/O error.
COMPOSER_EXPORT void save_pt(const std::filesystem::path& path, const NamedTensors& tensors);

}  // namespace composer::formats
