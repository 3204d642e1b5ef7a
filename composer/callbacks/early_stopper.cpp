#include "composer/callbacks/early_stopper.h"

#include <cmath>
#include <utility>

#include "composer/callbacks/direction.h"
#include "composer/callbacks/stop_finished.h"
#include "composer/core/direction.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"

namespace composer::callbacks {

namespace {

std::vector<Option<EarlyStopperOptions>> early_stopper_options() {
  using O = EarlyStopperOptions;
  return all_options(
      option("monitor", &O::monitor).example("MulticlassAccuracy").refuses({""}),
      option("dataloader_label", &O::dataloader_label).example("eval").refuses({""}),
      option("better", &O::better, kDirections), option("min_delta", &O::min_delta).at_least(0),
      option("patience", &O::patience).in({TimeUnit::EPOCH, TimeUnit::BATCH}).at_least(0).refuses({"3sp", "0.5dur"}));
}

}  // namespace

EarlyStopper::EarlyStopper(EarlyStopperOptions options)
    : options_(checked("EarlyStopper", std::move(options), early_stopper_options())) {
  const auto& [monitor, label, better, min_delta, patience] = options_;
  if (monitor.empty() || label.empty())
    throw ConfigError("EarlyStopper: monitor and dataloader_label are required, got \"", monitor, "\" and \"", label,
                      '"');
}

void EarlyStopper::init(const State&, Logger&) {
  better_.reset();
  is_better_known_ = false;
  best_.reset();
  best_at_.reset();
  has_trained_ = false;
}

void EarlyStopper::eval_end(const State& state, Logger&) {
  if (is_judged(state, options_.dataloader_label, options_.monitor)) judge(state);
}
void EarlyStopper::epoch_end(const State& state, Logger&) { judge(state); }
void EarlyStopper::batch_end(const State& state, Logger&) {
  if (options_.patience.unit() == TimeUnit::BATCH) judge(state);
}

void EarlyStopper::judge(const State& state) {
  const auto& [monitor, label, better, min_delta, patience] = options_;
  if (state.dataloader_label != label) return;  // after another loader, this metric is not fresh
  const double value = state.metrics.at(label, monitor);
  if (!is_better_known_) ask_direction(state);

  const Timestamp& now = state.timestamp;
  // Counting begins, or begins again after a reset of time.
  if (!best_at_ || now.batch < best_at_->batch) best_at_ = now;
  const double gain = (better_ == Better::HIGHER ? 1 : -1) * (value - best_.value_or(NAN));
  if (!std::isnan(value) && !(gain <= min_delta)) {  // negated, because there is no best value for the first one
    best_ = value;
    best_at_ = now;
  } else if (now.get(patience.unit()) - best_at_->get(patience.unit()) > patience) {
    stop_finished(state, join("EarlyStopper: ", label, '/', monitor, " has not improved for longer than ", patience,
                              "; it is ", value, ", and ", best_text()));
  }
}

std::string EarlyStopper::best_text() const {
  if (!best_) return "it has had no best value";
  return join("its best value is ", *best_, ", of epoch ", best_at_->epoch, ", batch ", best_at_->batch);
}

// A best value that was loaded does not count if the direction has changed.
void EarlyStopper::ask_direction(const State& state) {
  const Better better = direction("EarlyStopper", options_.better, state, options_.dataloader_label, options_.monitor);
  if (better_ && *better_ != better) best_.reset();
  better_ = better;
  is_better_known_ = true;
}

void EarlyStopper::check_fit(const FitOutline& fit, const State& state) const {
  const auto& [monitor, label, better, min_delta, patience] = options_;
  check_monitor("EarlyStopper", label, monitor, better, fit, state);
  fit.check_epochs("EarlyStopper: patience", patience, EarlyStopperOptions().patience, "so it never stops the run",
                   state);
}

void EarlyStopper::visit_state(StateVisitor& visit) {
  visit("better", better_);
  visit("best", best_);
  visit("best_at", best_at_);
}

// At this event the last evaluation is still to come, and a paused run may be evaluated later.
void EarlyStopper::fit_end(const State& state, Logger&) { has_trained_ = has_trained_ || is_judged(state); }

void EarlyStopper::close(const State& state, Logger&) {
  if (best_at_ || !std::exchange(has_trained_, false)) return;
  const std::string& label = options_.dataloader_label;
  const bool is_training = state.dataloader_label == label;
  warn(join("EarlyStopper: had no effect, because ",
            is_training ? "no epoch has ended; with a patience in ba it checks \"" : "nothing was evaluated as \"",
            label, is_training ? "\" after each batch" : "\""));
}

StateDict EarlyStopper::local_hparams() const { return describe(options_, early_stopper_options()); }

namespace entries {

Entry<Callbacks> early_stopper() {
  return entry<EarlyStopper>("early_stopper", "Stops once a metric no longer improves", early_stopper_options());
}

}  // namespace entries
}  // namespace composer::callbacks
