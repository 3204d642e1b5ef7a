#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer::callbacks {

enum class ExportFormat : std::uint8_t {
  TORCHSCRIPT,  // a program with its weights, recorded while the model is run with the sample
  SAFETENSORS   // weights only
};

struct ExportForInferenceOptions {
  ExportFormat save_format =
      ExportFormat::TORCHSCRIPT;  // TORCHSCRIPT: a program with its weights; SAFETENSORS: weights
  std::string save_path = {};     // required: path of the file; placeholders as in the names of checkpoints
  // The batch with which the model is recorded for TORCHSCRIPT. Empty: four samples of the first batch of training.
  Batch sample_input = {};
  // Names of the tensors of that batch that the program takes, in this order; empty: all of them.
  std::vector<std::string> input_names = {};
};

// Writes the model for inference when a fit ends, in evaluation mode and with the weights that an algorithm such as EMA
// returns for export. A new file replaces the previous one. Rank 0 writes; the file is sent to loggers that take files.
// Throws ConfigError from the constructor, and before the first batch is trained if that batch lacks one of the
// input_names. Throws Error at FIT_START if the file cannot be written, and before the first batch is trained if the
// recorded program would have other outputs than the model.
class COMPOSER_EXPORT ExportForInferenceCallback final : public Callback {
 public:
  explicit ExportForInferenceCallback(ExportForInferenceOptions options);
  StateDict local_hparams() const override;

  void visit_state(StateVisitor& visit) override;  // stores the sample if it was taken from the first batch

  void init(const State& state, Logger& logger) override;
  void fit_start(const State& state, Logger& logger) override;
  void after_dataloader(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;

 private:
  std::string path_at(const State& state) const;

  ExportForInferenceOptions options_;
  std::string path_;  // from INIT on: absolute, with placeholders replaced
  Batch sample_;
};

}  // namespace composer::callbacks
