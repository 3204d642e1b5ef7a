#pragma once
#include <limits>
#include <optional>
#include <string>

#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"

namespace composer::callbacks {

struct ThresholdStopperOptions {
  std::string monitor;                                          // required: name of the metric, without its label
  std::string dataloader_label;                                 // required: "train", or the evaluator that reports it
  double threshold = std::numeric_limits<double>::quiet_NaN();  // required
  std::optional<Better> better = {};                            // unset: as the metric itself says, or else by its name
  bool stop_on_batch = false;  // judges metrics of training after each batch, which reads them on the host
};

// Asks to stop once the metric is better than the threshold; equal is not better, and NaN never is. Judges whenever the
// evaluator ends, or, for metrics of training, at the end of epochs. Throws ConfigError from the constructor, and at
// the first evaluation if it has no such metric.
class COMPOSER_EXPORT ThresholdStopper final : public Callback {
 public:
  explicit ThresholdStopper(ThresholdStopperOptions options);
  void eval_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;

 private:
  void judge(const State& state);

  ThresholdStopperOptions options_;
  std::optional<Better> better_;
};

}  // namespace composer::callbacks
