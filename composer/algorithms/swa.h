#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "composer/algorithms/weight_averages.h"
#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::algorithms {

enum class AnnealStrategy : std::uint8_t { LINEAR, COS };

struct SWAOptions {
  Time swa_start = "0.7dur";  // when averaging begins, in dur or ep
  Time swa_end = "0.97dur";   // when the model gets the averages and trains on with them, in the same unit; > swa_start
  Time update_interval = "1ep";  // time between updates, counted from swa_start, in ba or ep; >= 1
  bool schedule_swa_lr = false;  // move the learning rate to swa_lr, from swa_start to the end of the fit
  AnnealStrategy anneal_strategy = AnnealStrategy::LINEAR;  // how the rate moves: LINEAR, or COS for half a cosine
  std::int64_t anneal_steps = 10;                           // updates until the rate is swa_lr, >= 1
  double swa_lr = 0;  // learning rate of all groups, > 0; 0: the rates at swa_start. Requires schedule_swa_lr
};

// The learning rate after `updates` updates, on the way from `from` to options.swa_lr.
COMPOSER_EXPORT double swa_learning_rate(double from, std::int64_t updates, const SWAOptions& options);

// Averages the weights at each update after swa_start, with equal weight (arXiv:1803.05407). A fit that starts at time
// zero begins without averages. Throws ConfigError from the constructor.
class COMPOSER_EXPORT SWA final : public Algorithm {
 public:
  explicit SWA(SWAOptions options = {});
  explicit SWA(EmptyOptions) : SWA() {}
  StateDict local_hparams() const override;
  EventSet events() const override;
  bool match(Event event, const State& state) const override;
  void apply(Event event, State& state, Logger& logger) override;
  bool takes_part_in_trials() const override { return false; }
  void visit_state(StateVisitor& visit) override;

  std::int64_t updates() const { return updates_; }  // number of updates in the averages
  const WeightsByName& averages() const { return averages_.by_name(); }

 private:
  Event update_event() const;
  void restart();
  void begin_fit(State& state);
  void update(State& state);
  void warn_of_lost_averages(const State& state) const;
  void set_learning_rates(State& state);
  void restore_learning_rates(State& state);
  void finish(State& state);

  SWAOptions options_;
  WeightAverages averages_;
  std::int64_t updates_ = 0, started_at_ = 0;  // started_at_: in the unit of update_interval
  bool completed_ = false;
  std::optional<std::string> completed_for_;  // the max_duration of the fit in which averaging was completed
  // The learning rates of the groups when averaging started. Empty in fits after the one in which it was completed,
  // because they have their own rates.
  std::vector<double> rates_;
  std::vector<double> set_rates_;  // the rates that this algorithm set last
};

}  // namespace composer::algorithms
