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
  std::vector<Rename> rename;  // from the file's names to the module's
  bool strict = true;          // missing and unexpected tensors are errors; tensors of another shape always are
  bool convert = false;        // a tensor of another dtype is converted; else it is an error
  bool allow_unknown = false;  // of .pt files: see formats::PtOptions
};

// What became of the tensors, by the module's names.
struct COMPOSER_EXPORT WeightsReport {
  std::vector<std::string> loaded;
  std::vector<std::string> missing;     // the module has them, the file has not
  std::vector<std::string> unexpected;  // the file has them, the module has not
  std::vector<std::string> mismatched;  // "fc.weight: float [10, 64] in the model, float [5, 64] in the file"
  std::string text() const;             // a line for each that was not loaded
};

struct COMPOSER_EXPORT WeightsError : CheckpointError {
  WeightsError(const std::string& what, WeightsReport report) : CheckpointError(what), report(std::move(report)) {}
  WeightsError(const WeightsError&) = default;
  WeightsError& operator=(const WeightsError&) = default;
  ~WeightsError() override;
  WeightsReport report;
};

// Parameters and buffers under the names and in the order of Python's state_dict(); one that is registered several
// times is there under each name. They are the module's own tensors.
COMPOSER_EXPORT formats::NamedTensors state_dict(const torch::nn::Module& module);

// The tensors of a .safetensors file, or of a .pt or .pth of torch.save (which of them, its first bytes tell). Of a
// checkpoint of MosaicML Composer or Lightning, the model's part is taken. Throws CheckpointError if it is damaged.
COMPOSER_EXPORT formats::NamedTensors read_weights(const std::filesystem::path& path, bool allow_unknown = false);

// Loads such a file into the module's parameters and buffers, wherever they lie. Throws WeightsError if the tensors are
// not those of the module, CheckpointError if the file is damaged; then nothing has changed. A parameter that is
// registered under several names counts as loaded when one of them was.
COMPOSER_EXPORT WeightsReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                                           const LoadWeightsOptions& options = {});

// The same of tensors that have been read already; `from` says in errors where.
COMPOSER_EXPORT WeightsReport load_weights(torch::nn::Module& module, const formats::NamedTensors& tensors,
                                           const std::string& from, const LoadWeightsOptions& options = {});

struct SaveWeightsOptions {
  std::vector<Rename> rename;                   // from the module's names to the file's
  std::map<std::string, std::string> metadata;  // of .safetensors files
};

// Writes state_dict(module) to a file that appears whole or not at all: .safetensors, .pt or .pth.
COMPOSER_EXPORT void save_weights(const torch::nn::Module& module, const std::filesystem::path& path,
                                  const SaveWeightsOptions& options = {});

}  // namespace composer
