#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::util {

// Writes named tensors as a safetensors file, which Python's safetensors reads: under a temporary name in the same
// folder, synced, then renamed, so that the path never holds half a file. Makes the folders that are missing. Throws
// ConfigError for a name that is there twice or a dtype that the format has not, Error if the disk refuses.
COMPOSER_EXPORT void save_safetensors(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                                      const std::filesystem::path& path);

}  // namespace composer::util
