#pragma once
#include <limits>
#include <optional>
#include <string>

#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"

namespace composer::callbacks {

struct ThresholdStopperOptions {
  std::string monitor = {};           // required: name of the metric, without its label
  std::string dataloader_label = {};  // required: "train", or the label of the evaluator that reports the metric
  double threshold = std::numeric_limits<double>::quiet_NaN();  // required; it must be exceeded: equal is not enough
  std::optional<Better> better = {};  // HIGHER or LOWER; unset: as the metric declares, otherwise by its name
  bool stop_on_batch = false;         // also checks training metrics after each batch, which copies them to the host
};

// Requests a stop when the metric is better than the threshold, and says so in one warning; equal or NaN is not better.
// Checks when the evaluator ends, and training metrics at the end of epochs. Throws ConfigError from the constructor,
// at the start of a fit whose evaluator has no such metric, and at an evaluation that does not report it. Warns at the
// start of a fit without the label.
class COMPOSER_EXPORT ThresholdStopper final : public Callback {
 public:
  explicit ThresholdStopper(ThresholdStopperOptions options);
  StateDict local_hparams() const override;
  void eval_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void check_fit(const FitOutline& fit, const State& state) const override;

 private:
  void judge(const State& state);

  ThresholdStopperOptions options_;
  std::optional<Better> better_;
};

}  // namespace composer::callbacks
