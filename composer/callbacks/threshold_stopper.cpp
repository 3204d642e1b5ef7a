#include "composer/callbacks/threshold_stopper.h"

#include <cmath>

#include "composer/callbacks/direction.h"
#include "composer/callbacks/stop_finished.h"
#include "composer/core/direction.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/state.h"

namespace composer::callbacks {

ThresholdStopper::ThresholdStopper(ThresholdStopperOptions options) : options_(std::move(options)) {
  if (options_.monitor.empty() || options_.dataloader_label.empty())
    throw ConfigError("ThresholdStopper: monitor and dataloader_label are required, got \"", options_.monitor,
                      "\" and \"", options_.dataloader_label, '"');
  if (std::isnan(options_.threshold)) throw ConfigError("ThresholdStopper: threshold is required and must not be NaN");
}

void ThresholdStopper::eval_end(const State& state, Logger&) {
  if (is_judged(state, options_.dataloader_label, options_.monitor)) judge(state);
}
void ThresholdStopper::epoch_end(const State& state, Logger&) { judge(state); }
void ThresholdStopper::batch_end(const State& state, Logger&) {
  if (options_.stop_on_batch) judge(state);
}

void ThresholdStopper::check_fit(const FitOutline& fit, const State& state) const {
  const std::string& label = options_.dataloader_label;
  check_monitor("ThresholdStopper", label, options_.monitor, options_.better, fit, state);
  if (!fit.epochs_end && fit.trains_under(label) && !options_.stop_on_batch)
    throw ConfigError("ThresholdStopper: judges \"", label, "\" at the end of epochs, and no epoch ends in a loop of ",
                      "step(batch); set stop_on_batch");
}

void ThresholdStopper::judge(const State& state) {
  const auto& [monitor, label, threshold, given, stop_on_batch] = options_;
  if (state.dataloader_label != label) return;
  const double value = state.metrics.at(label, monitor);
  if (!better_) better_ = direction("ThresholdStopper", given, state, label, monitor);
  if (better_ == Better::HIGHER ? value > threshold : value < threshold)
    stop_finished(state, join("ThresholdStopper: ", label, '/', monitor, " is ", value, ", beyond ", threshold));
}

namespace {

std::vector<Option<ThresholdStopperOptions>> threshold_stopper_options() {
  using O = ThresholdStopperOptions;
  return all_options(option("monitor", &O::monitor).example("MulticlassAccuracy").refuses({""}),
                     option("dataloader_label", &O::dataloader_label).example("eval").refuses({""}),
                     option("threshold", &O::threshold).example("0.99"), option("better", &O::better, kDirections),
                     option("stop_on_batch", &O::stop_on_batch));
}

}  // namespace

StateDict ThresholdStopper::local_hparams() const { return describe(options_, threshold_stopper_options()); }

namespace entries {

Entry<Callbacks> threshold_stopper() {
  return entry<ThresholdStopper>("threshold_stopper", "Stops once a metric is better than a threshold",
                                 threshold_stopper_options());
}

}  // namespace entries
}  // namespace composer::callbacks
