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
  ExportFormat save_format = ExportFormat::TORCHSCRIPT;
  std::string save_path = {};  // required: of a file; placeholders as in the names of checkpoints
  // For TORCHSCRIPT. Empty: four samples of the first batch that is trained. The program takes these of its tensors, in
  // this order; empty: all of them.
  Batch sample_input = {};
  std::vector<std::string> input_names = {};
};

// Writes the model for inference when a fit ends, in evaluation mode and with the weights that an algorithm such as EMA
// hands out for export. A new file replaces the one before. Rank 0 writes; the file is sent to loggers that take files.
// Throws ConfigError from the constructor, and before the first batch is trained if it lacks one of the input_names;
// Error at FIT_START if the file cannot be written.
class COMPOSER_EXPORT ExportForInferenceCallback final : public Callback {
 public:
  explicit ExportForInferenceCallback(ExportForInferenceOptions options);
  StateDict local_hparams() const override;

  void visit_state(StateVisitor& visit) override;  // the sample, if it is of the first batch

  void init(const State& state, Logger& logger) override;
  void fit_start(const State& state, Logger& logger) override;
  void after_dataloader(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;

 private:
  std::string path_at(const State& state) const;

  ExportForInferenceOptions options_;
  std::string path_;  // from INIT on absolute, with its placeholders
  Batch sample_;
};

}  // namespace composer::callbacks
