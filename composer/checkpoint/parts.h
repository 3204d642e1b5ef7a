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

// A checkpoint in parts: rank 0 writes what one process would, with its own share of the optimizer's state, and every
// other rank a file with its share. They write into the temporary folder that rank 0 has made, each file under another
// name until it is whole and synced. When all are there, rank 0 writes the manifest, which lists them, and renames the
// folder. So the checkpoint appears once, whole, and is moved, copied and deleted as any other.

// "state-1-of-4.safetensors": of rank 1 of four. Rank 0 writes state.safetensors.
COMPOSER_EXPORT std::string part_name(int rank, int ranks);

COMPOSER_EXPORT bool is_part_name(std::string_view file);

// What another rank must know to write its part.
struct COMPOSER_EXPORT PartTicket {
  std::filesystem::path folder;
  std::string id;  // of the checkpoint

  std::string text() const;
  static PartTicket parse(const std::string& text);
};

// A rank that cannot write its part says why in a file of this name.
COMPOSER_EXPORT std::string failure_name(const std::string& part);

// Waits until all parts are in the folder. Throws FileError for a part whose rank has failed, or that does not come
// within ten minutes, or within `patience` from when that is set first.
COMPOSER_EXPORT std::vector<Manifest::File> await_parts(const std::filesystem::path& folder,
                                                        const std::vector<std::string>& names, FileSystem& files,
                                                        const CheckpointFolder::Patience& patience);

// Adds the parts of a checkpoint to what its state.safetensors has, as load() says. Throws CheckpointError for parts
// that are missing or damaged.
COMPOSER_EXPORT void add_parts(const Found& checkpoint, StateDict& state, int rank, int ranks);

}  // namespace composer::saving
