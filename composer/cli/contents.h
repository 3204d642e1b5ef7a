#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/checkpoint/folder.h"

namespace composer::cli {

enum class Kind : std::uint8_t { CHECKPOINT, SAVE_FOLDER, SAFETENSORS, PT };
// By what is there, not by its name. Throws CheckpointError if there is nothing.
Kind kind_of(const std::filesystem::path& path);

struct Entry {
  std::string name, dtype;  // "model/fc.weight" in a checkpoint, "fc.weight" in a file of weights; "f32"
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
  std::function<at::Tensor()> read;  // verifies its bytes
};

// What a checkpoint or a file of weights holds. Tensors are read one by one, so it may be larger than memory (a .pt
// file must not).
struct Contents {
  std::filesystem::path path;
  Kind kind = Kind::CHECKPOINT;
  std::optional<saving::Found> checkpoint;
  bool checksums = false;  // every byte is verified when it is read
  std::vector<Entry> tensors;
  std::vector<std::pair<std::string, std::string>> values;  // all that is no tensor, as JSON

  const Entry* find(const std::string& name) const;
};

// `allow_unknown`: classes in .pt files that are no weights are passed over.
Contents open_contents(const std::filesystem::path& path, bool allow_unknown = false);

// Folders of checkpoints below one, damaged ones too, in the order of their names.
std::vector<std::filesystem::path> checkpoints_below(const std::filesystem::path& folder);
// What a killed process has left below it.
std::vector<std::filesystem::path> leftovers_below(const std::filesystem::path& folder);

}  // namespace composer::cli
