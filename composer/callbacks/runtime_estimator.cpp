#include "composer/callbacks/runtime_estimator.h"

#include <algorithm>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"

namespace composer::callbacks {
namespace {

// The average of the epochs that have ended, or the length of the loader. 0: unknown.
double batches_per_epoch(const State& state) {
  const Timestamp& now = state.timestamp;
  if (now.epoch > 0) return static_cast<double>(now.batch - now.batch_in_epoch) / static_cast<double>(now.epoch);
  return state.dataloader_len ? static_cast<double>(*state.dataloader_len) : 0;
}

// Time in epochs, including the fraction of the current one.
double epochs_at(const Timestamp& at, const State& state) {
  const double length = batches_per_epoch(state);
  return length > 0 ? static_cast<double>(at.batch) / length : static_cast<double>(at.epoch);
}

// The share of max_duration at this time of the fit; interpolated if the unit of max_duration is coarse.
double share_done(const Timestamp& at, const State& state) {
  const Time limit = *state.max_duration;
  const OptionalTime iteration = state.iteration_length;
  double done = 0, of = limit.as_double();
  if (limit.unit() == TimeUnit::SECOND) {
    done = at.total_wct.count();
  } else if (limit.unit() == TimeUnit::EPOCH) {
    done = epochs_at(at, state);
  } else if (limit.unit() == TimeUnit::ITERATION && iteration) {
    of *= iteration->as_double();
    done = iteration->unit() == TimeUnit::EPOCH ? epochs_at(at, state) : static_cast<double>(at.token);
  } else {
    done = at.get(limit.unit()).as_double();
  }
  return of > 0 ? std::min(done / of, 1.) : 1;
}

std::vector<Option<RuntimeEstimatorOptions>> runtime_estimator_options() {
  using O = RuntimeEstimatorOptions;
  return all_options(option("skip_batches", &O::skip_batches).at_least(0),
                     option("time_unit", &O::time_unit, kWallClockUnits));
}

}  // namespace

RuntimeEstimator::RuntimeEstimator(RuntimeEstimatorOptions options)
    : options_(checked("RuntimeEstimator", options, runtime_estimator_options())) {
  seconds_in(options_.time_unit, "RuntimeEstimator");
}

void RuntimeEstimator::init(const State&, Logger& logger) {
  *this = RuntimeEstimator(options_);
  logger.log_hyperparameters({{"time/remaining_estimate_unit", std::string(to_string(options_.time_unit))}});
}

void RuntimeEstimator::batch_end(const State& state, Logger& logger) {
  const Timestamp& now = state.timestamp;
  if (!state.max_duration) {
    if (!warned_) warn("RuntimeEstimator: there is no max_duration, so nothing is estimated");
    warned_ = true;
    return;
  }
  if (now.batch <= last_batch_) {  // counted from zero again
    start_.reset();
    skipped_ = 0;
  }
  last_batch_ = now.batch;
  if (!start_) {
    evaluations_.clear();
    if (skipped_ < options_.skip_batches || !state.previous_timestamp) return void(++skipped_);
    start_ = state.previous_timestamp;
  }
  const double from = share_done(*start_, state), to = share_done(now, state);
  if (!(to > from)) return;
  const Seconds training = (now.total_wct - start_->total_wct) / (to - from) * (1 - to);
  const Seconds remaining = training + remaining_evaluations(state, from);
  logger.log_metrics(
      {{"time/remaining_estimate", remaining.count() / seconds_in(options_.time_unit, "RuntimeEstimator")}});
}

// Assumes the same number of evaluations per share of the run as so far. The first of several is left out of the
// average, because it takes longer.
Seconds RuntimeEstimator::remaining_evaluations(const State& state, double from) const {
  Seconds remaining{};
  for (const auto& [label, done] : evaluations_) {
    const double to = share_done(done.last_at, state);
    if (!(to > from)) continue;
    const auto count = static_cast<double>(done.count);
    const Seconds each = done.count > 1 ? (done.total - done.first) / (count - 1) : done.total;
    remaining += each * (count / (to - from) * (1 - to));
  }
  return remaining;
}

void RuntimeEstimator::eval_end(const State& state, Logger&) {
  if (!start_) return;
  Evaluations& done = evaluations_[state.dataloader_label];
  const Seconds taken = state.eval_timestamp.total_wct;
  if (done.count++ == 0) done.first = taken;
  done.total += taken;
  done.last_at = state.timestamp;
}

void RuntimeEstimator::Evaluations::visit_state(StateVisitor& visit) {
  visit("count", count), visit("first", first), visit("total", total), visit("last_at", last_at);
}

// The time between a checkpoint and the resume of the run is not counted, so the measurement continues.
void RuntimeEstimator::visit_state(StateVisitor& visit) {
  visit("skipped", skipped_);
  visit("last_batch", last_batch_);
  visit("start", start_);
  visit("evaluations", evaluations_);
}

StateDict RuntimeEstimator::local_hparams() const { return describe(options_, runtime_estimator_options()); }

namespace entries {

Entry<Callbacks> runtime_estimator() {
  return entry<RuntimeEstimator>("runtime_estimator", "Logs the estimated time until the end of training",
                                 runtime_estimator_options());
}

}  // namespace entries
}  // namespace composer::callbacks
