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
  // Classes and functions other than those of weights are an error that names them. If true, what is made of them is
  // passed over, and the tensors are read, as it is with what MosaicML Composer's checkpoints hold beside the weights
  // in any case. No code of the file is ever carried out.
  bool allow_unknown = false;
};

// The tensors of a file that torch.save wrote: of a state_dict, or of dicts and lists of tensors, whose keys are joined
// by dots. Everything that is wrong with the file is a CheckpointError; every byte of a tensor is verified by its CRC
// when it is read. Tensors that share memory there share it here. One thread may read at a time.
class COMPOSER_EXPORT PtFile {
 public:
  explicit PtFile(const std::filesystem::path& path, PtOptions options = {});
  explicit PtFile(std::unique_ptr<ByteSource> source, PtOptions options = {});
  ~PtFile();
  PtFile(PtFile&&) noexcept;
  PtFile& operator=(PtFile&&) noexcept;

  const std::vector<std::string>& names() const;  // in the file's order
  at::Tensor read(std::string_view name) const;   // CheckpointError if there is none
  NamedTensors read_all() const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

// Whether torch.save wrote it, which the first bytes tell; also before PyTorch 1.6, which PtFile refuses by name.
COMPOSER_EXPORT bool is_pt_file(const ByteSource& file);

// Writes a file that torch.load(weights_only=True), also with mmap=True, reads as a state_dict. Tensors that share
// memory and dtype are written once; others contiguous. Throws ConfigError for a dtype that it has no name for.
COMPOSER_EXPORT void write_pt(const NamedTensors& tensors, const Sink& sink);

// To a file that appears whole or not at all. Makes the folders that are missing. Error if the disk refuses.
COMPOSER_EXPORT void save_pt(const std::filesystem::path& path, const NamedTensors& tensors);

}  // namespace composer::formats
