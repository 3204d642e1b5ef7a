#pragma once
#include <cstdint>

#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer::callbacks {

struct ModelSummaryOptions {
  std::int64_t depth = 3;  // >= 1; modules that are deeper are part of those above them
  Batch example = {};      // the model predicts it once, for the shapes of outputs and FLOPs; empty: these are left out
};

// Logs the table model_summary when the first fit of a run begins: a row for each module of the model, with its type
// and parameters, and a last row for the whole model (composer/predict/summary.h). Throws ConfigError from the
// constructor.
class COMPOSER_EXPORT ModelSummary final : public Callback {
 public:
  explicit ModelSummary(ModelSummaryOptions options = {});
  explicit ModelSummary(EmptyOptions) : ModelSummary() {}
  StateDict local_hparams() const override;
  void init(const State& state, Logger& logger) override;
  void fit_start(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

 private:
  ModelSummaryOptions options_;
  bool has_logged_ = false;  // in this run
};

}  // namespace composer::callbacks
