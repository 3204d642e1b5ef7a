#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "composer/callbacks/wall_clock_unit.h"
#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::callbacks {

struct RuntimeEstimatorOptions {
  std::int64_t skip_batches = 1;                   // first batches that are not measured, as they take longer; >= 0
  WallClockUnit time_unit = WallClockUnit::HOURS;  // unit of the estimate: SECONDS, MINUTES, HOURS or DAYS
};

// Logs, after each batch, the estimated wall time until the end of the fit as time/remaining_estimate. Training and
// evaluations are estimated separately, so the estimate does not jump after an evaluation.
class COMPOSER_EXPORT RuntimeEstimator final : public Callback {
 public:
  explicit RuntimeEstimator(RuntimeEstimatorOptions options = {});
  explicit RuntimeEstimator(EmptyOptions) : RuntimeEstimator() {}
  StateDict local_hparams() const override;
  void init(const State& state, Logger& logger) override;  // clears the measurements of another trainer
  void batch_end(const State& state, Logger& logger) override;
  void eval_end(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

 private:
  struct Evaluations {
    std::int64_t count = 0;
    Seconds first{}, total{};
    Timestamp last_at;  // timestamp of training at the last evaluation
    void visit_state(StateVisitor& visit);
  };
  Seconds remaining_evaluations(const State& state, double from) const;

  RuntimeEstimatorOptions options_;
  std::int64_t skipped_ = 0, last_batch_ = -1;
  std::optional<Timestamp> start_;                  // the start of the measured batches; unset: none yet
  std::map<std::string, Evaluations> evaluations_;  // evaluations since start_, by label
  bool warned_ = false;                             // whether a warning was given that there is no max_duration
};

}  // namespace composer::callbacks
