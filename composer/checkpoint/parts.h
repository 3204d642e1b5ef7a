#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/manifest.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

// A checkpoint in parts. Rank 0 writes what a single process would write, with its own share of the optimizer's state,
// and every other rank writes a file with its share. All write to the temporary folder that rank 0 has made, each file
// under a different name until it is complete and synced. When all files are there, rank 0 writes the manifest, which
// lists them, and renames the folder. The checkpoint therefore appears at once and complete, and is moved, copied and
// deleted like any other.

// The name of a part: "state-1-of-4.safetensors" is of rank 1 of four. Rank 0 writes state.safetensors.
COMPOSER_EXPORT std::string part_name(int rank, int ranks);

COMPOSER_EXPORT bool is_part_name(std::string_view file);

// What a rank must know to write its part.
struct COMPOSER_EXPORT PartTicket {
  std::filesystem::path folder;
  std::string id;  // of the checkpoint

  std::string text() const;
  static PartTicket parse(const std::string& text);
};

// The name of the file in which a rank that cannot write its part gives the reason.
COMPOSER_EXPORT std::string failure_name(const std::string& part);

// Waits until all parts are in the folder. Throws FileError if a rank has reported a failure, or if a part is missing
// after ten minutes, or after `patience`, counted from when it is first set.
COMPOSER_EXPORT std::vector<Manifest::File> await_parts(const std::filesystem::path& folder,
                                                        const std::vector<std::string>& names, FileSystem& files,
                                                        const CheckpointFolder::Patience& patience);

// Adds the parts of a checkpoint to the contents of its state.safetensors, as described at load(). Throws
// CheckpointError for missing or damaged parts.
COMPOSER_EXPORT void add_parts(const Found& checkpoint, StateDict& state, int rank, int ranks);

}  // namespace composer::saving
