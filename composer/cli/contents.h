#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/checkpoint/folder.h"
#include "composer/step/handed_out.h"

namespace composer::cli {

enum class Kind : std::uint8_t { CHECKPOINT, SAVE_FOLDER, SAFETENSORS, PT };
// Detects the kind from the content; for a damaged file of weights, from the name. Throws CheckpointError for a missing
// path and for an unknown kind.
Kind kind_of(const std::filesystem::path& path);

inline constexpr std::string_view kModel = "model/";  // prefix of the names of a checkpoint's weights

struct Entry {
  std::string name, dtype;  // name: "model/fc.weight" in a checkpoint, "fc.weight" in a file of weights; dtype: "f32"
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
  std::function<at::Tensor()> read;  // verifies the bytes
};

// The contents of a checkpoint or a file of weights. Tensors are read one by one, so they may exceed memory (except for
// those of a .pt file, which stay in memory once they are read).
struct Contents {
  std::filesystem::path path;
  Kind kind = Kind::CHECKPOINT;
  std::optional<saving::Found> checkpoint;
  bool checksums = false;  // whether every byte is verified when read
  std::vector<Entry> tensors;
  std::vector<std::pair<std::string, std::string>> values;  // everything except tensors, as JSON
  HandedOut handed_out = {};                                // of a checkpoint

  const Entry* find(const std::string& name) const;
};

// With `allow_unknown`, skips what this version cannot read: objects of unknown classes, tensors of unknown dtypes.
Contents open_contents(const std::filesystem::path& path, bool allow_unknown = false);

// The hyperparameters of the run, if the checkpoint contains them: name and JSON.
std::vector<std::pair<std::string, std::string>> hyperparameters_of(const Contents& contents);
// A value of Contents as a person writes it: a text without its quotes.
std::string plain_text(const std::string& json);

// Folders of checkpoints below a folder, including damaged ones, sorted by name.
std::vector<std::filesystem::path> checkpoints_below(const std::filesystem::path& folder);
// Unfinished checkpoints of killed processes below a folder.
std::vector<std::filesystem::path> leftovers_below(const std::filesystem::path& folder);

}  // namespace composer::cli
