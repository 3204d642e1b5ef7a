#pragma once
#include <filesystem>
#include <string>

#include "composer/checkpoint/folder.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

// A StateDict as a safetensors file: its tensors under their paths ("optimizer/state/fc.weight/exp_avg"), everything
// else as JSON in the metadata "composer.state", where a tensor is {"$tensor": name}. `id` is that of the checkpoint,
// so that files of two checkpoints are never taken for one.
// Returns the file's checksum, for the manifest.
COMPOSER_EXPORT std::string write_state(const StateDict& state, const std::string& id, const PlacedSink& sink);
// The tensors of a flat dict under their own names, and nothing else: what Python's safetensors reads as a state_dict.
COMPOSER_EXPORT std::string write_weights(const StateDict& weights, const std::string& id, const PlacedSink& sink);

// Both verify every byte of a file of that checkpoint. Throw CheckpointError.
COMPOSER_EXPORT StateDict read_state(const Found& checkpoint, const std::string& file);
COMPOSER_EXPORT StateDict read_weights(const Found& checkpoint, const std::string& file);

}  // namespace composer::saving
