#pragma once
#include <optional>
#include <string>

#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/time.h"

namespace composer::callbacks {

struct EarlyStopperOptions {
  std::string monitor;                // required: name of the metric, without its label
  std::string dataloader_label;       // required: "train", or the evaluator that reports it
  std::optional<Better> better = {};  // unset: as the metric itself says, or else by its name
  double min_delta = 0;               // >= 0; a gain of no more than this is none
  Time patience = "1ep";              // >= 0, in epochs or batches
};

// Asks to stop once the metric has gone for longer than `patience` without a new best. The first value is a best; NaN
// never is. Judges whenever the evaluator ends, or, for metrics of training, at the end of epochs, and of batches if
// patience is in batches (which reads the metric on the host each batch). Each trainer begins without a best. Throws
// ConfigError from the constructor, and at the first evaluation if it has no such metric. Warns at the end of a fit
// without any evaluation of that label.
class COMPOSER_EXPORT EarlyStopper final : public Callback {
 public:
  explicit EarlyStopper(EarlyStopperOptions options);
  void init(const State& state, Logger& logger) override;
  void eval_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

 private:
  void judge(const State& state);

  EarlyStopperOptions options_;
  std::optional<Better> better_;
  std::optional<double> best_;
  std::optional<Timestamp> best_at_;  // or, without a best, the first judgement
};

}  // namespace composer::callbacks
