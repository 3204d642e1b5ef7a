#pragma once
#include <filesystem>
#include <string>

#include "composer/checkpoint/folder.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"
#include "composer/formats/safetensors.h"

namespace composer::saving {

// Writes a StateDict as a safetensors file: tensors under their paths ("optimizer/state/fc.weight/exp_avg"), everything
// else as JSON in the metadata "composer.state", where a tensor is {"$tensor": name}. `id` is the checkpoint's id, so
// that files of different checkpoints cannot be mixed. Returns the file's checksum for the manifest.
COMPOSER_EXPORT std::string write_state(const StateDict& state, const std::string& id, const PlacedSink& sink);
// Writes only the tensors of a flat dict under their own names, as Python's safetensors reads a state_dict.
COMPOSER_EXPORT std::string write_weights(const StateDict& weights, const std::string& id, const PlacedSink& sink);

// Throw ConfigError for anything that write_state() and write_weights() would reject. Read no tensor and write nothing.
COMPOSER_EXPORT void check_state(const StateDict& state, const std::string& id);
COMPOSER_EXPORT void check_weights(const StateDict& weights, const std::string& id);

// Reads a whole file of the checkpoint and verifies every byte. Throws CheckpointError.
COMPOSER_EXPORT StateDict read_state(const Found& checkpoint, const std::string& file);
COMPOSER_EXPORT StateDict read_weights(const Found& checkpoint, const std::string& file);

// Opens a file of the checkpoint. Verifies the header, and that the manifest lists this file; tensors are verified when
// they are read. Throws CheckpointError.
COMPOSER_EXPORT formats::SafetensorsFile open_file(const Found& checkpoint, const std::string& file);
// Reads everything except tensors from a file of write_state(); tensors are undefined. Throws CheckpointError.
COMPOSER_EXPORT StateDict read_values(const formats::SafetensorsFile& file);

}  // namespace composer::saving
