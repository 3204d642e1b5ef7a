#pragma once
#include <optional>
#include <string>

#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/time.h"

namespace composer::callbacks {

struct EarlyStopperOptions {
  std::string monitor = {};           // required: name of the metric, without its label
  std::string dataloader_label = {};  // required: "train", or the label of the evaluator that reports the metric
  std::optional<Better> better = {};  // HIGHER or LOWER; unset: as the metric declares, otherwise by its name
  double min_delta = 0;               // >= 0; improvements of min_delta or less do not count
  Time patience = "1ep";              // >= 0, in ep or ba; the run stops when more than this has passed since the best
};

// Requests a stop when the metric has not improved for longer than `patience`, and says so in one warning. The first
// value counts as the best; NaN never does. Checks when the evaluator ends; training metrics at the end of epochs and,
// if patience is in batches, after each batch, which reads the metric on the host. Each trainer starts without a best
// value. Throws ConfigError from the constructor, at the start of a fit whose evaluator has no such metric, and at an
// evaluation that does not report it. Warns at the start of a fit without the label, and when the trainer is closed
// after fits, not only paused ones, in which it has checked nothing.
class COMPOSER_EXPORT EarlyStopper final : public Callback {
 public:
  explicit EarlyStopper(EarlyStopperOptions options);
  StateDict local_hparams() const override;
  void init(const State& state, Logger& logger) override;
  void eval_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;
  void check_fit(const FitOutline& fit, const State& state) const override;

 private:
  void judge(const State& state);
  void ask_direction(const State& state);
  std::string best_text() const;

  EarlyStopperOptions options_;
  std::optional<Better> better_;  // the direction of best_
  bool is_better_known_ = false;  // false: better_ was determined by an earlier process
  bool has_trained_ = false;      // whether a fit has ended that was not only paused
  std::optional<double> best_;
  std::optional<Timestamp> best_at_;  // time of the best value, or of the first check without one
};

}  // namespace composer::callbacks
