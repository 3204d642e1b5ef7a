#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/export.h"
#include "composer/formats/named_tensors.h"
#include "composer/formats/rename.h"

namespace torch::nn {
class Module;
}

namespace composer {

struct LoadWeightsOptions {
  std::vector<Rename> rename = {};  // from names in the file to names in the module
  bool strict = true;               // missing and unexpected tensors are errors; other shapes are errors in any case
  bool convert = false;             // converts tensors of another dtype; false: they are errors
  bool allow_unknown = false;       // skips what this version cannot read: unknown classes and dtypes
  // Wildcards for names, after `rename`. Matching tensors of the file are not loaded; those of the module keep their
  // values.
  std::vector<std::string> ignore = {};
};

// The result of loading, by the module's names.
struct COMPOSER_EXPORT WeightsReport {
  std::vector<std::string> loaded;
  std::vector<std::string> missing;     // in the module, but not in the file
  std::vector<std::string> unexpected;  // in the file, but not in the module
  std::vector<std::string> ignored;     // in the file or in the module, and not loaded because of `ignore`
  std::vector<std::string> mismatched;  // "fc.weight: float [10, 64] in the model, float [5, 64] in the file"
  std::string text() const;             // one line per tensor that was not loaded
};

struct COMPOSER_EXPORT WeightsError : CheckpointError {
  WeightsError(const std::string& what, WeightsReport report) : CheckpointError(what), report(std::move(report)) {}
  WeightsError(const WeightsError&) = default;
  WeightsError& operator=(const WeightsError&) = default;
  ~WeightsError() override;
  WeightsReport report;
};

// Returns parameters and buffers, with the names and the order of Python's state_dict(). A tensor that is registered
// under several names is listed under each. The tensors are the module's own, not copies.
COMPOSER_EXPORT formats::NamedTensors state_dict(const torch::nn::Module& module);

// Reads a .safetensors file, or a .pt or .pth file of torch.save; the first bytes determine the format. For a MosaicML
// Composer or Lightning checkpoint, or a dict of a model and its optimizer, returns only the model's tensors. Throws
// CheckpointError for a damaged file, formats::UnsupportedError for contents that this version cannot read;
// `allow_unknown` skips these.
COMPOSER_EXPORT formats::NamedTensors read_weights(const std::filesystem::path& path, bool allow_unknown = false);

// Loads a file that read_weights() reads into the module's parameters and buffers, on any device. Throws WeightsError
// if the tensors do not match the module, or none of them does, CheckpointError if the file is damaged; the module is
// then unchanged. A parameter registered under several names counts as loaded if the file has one of them.
COMPOSER_EXPORT WeightsReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                                           const LoadWeightsOptions& options = {});

// Like the function above, for tensors in memory. Errors name `from` as their source.
COMPOSER_EXPORT WeightsReport load_weights(torch::nn::Module& module, const formats::NamedTensors& tensors,
                                           const std::string& from, const LoadWeightsOptions& options = {});

struct SaveWeightsOptions {
  std::vector<Rename> rename = {};                   // from names in the module to names in the file
  std::map<std::string, std::string> metadata = {};  // for .safetensors files
};

// Writes state_dict(module) atomically to a .safetensors, .pt or .pth file.
COMPOSER_EXPORT void save_weights(const torch::nn::Module& module, const std::filesystem::path& path,
                                  const SaveWeightsOptions& options = {});

}  // namespace composer
