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
  Time swa_start = "0.7dur";     // in shares of the run, or epochs
  Time swa_end = "0.97dur";      // > swa_start, in the same unit; the model gets the averages, and trains on with them
  Time update_interval = "1ep";  // >= 1, in batches or epochs; counted from swa_start
  bool schedule_swa_lr = false;  // from swa_start to the end of the fit, the learning rate goes to swa_lr
  AnnealStrategy anneal_strategy = AnnealStrategy::LINEAR;
  std::int64_t anneal_steps = 10;  // >= 1; updates until the rate is swa_lr
  double swa_lr = 0;               // > 0; 0: the rates at swa_start. Needs schedule_swa_lr
};

// The learning rate after so many updates, on the way from `from` to options.swa_lr.
COMPOSER_EXPORT double swa_learning_rate(double from, std::int64_t updates, const SWAOptions& options);

// Averages the weights that training visits after swa_start, each alike (arXiv:1803.05407). A fit that counts from zero
// begins without averages. Throws ConfigError from the constructor.
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

  std::int64_t updates() const { return updates_; }  // that the averages consist of
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
  std::int64_t updates_ = 0, started_at_ = 0;  // the latter in the unit of update_interval
  bool completed_ = false;
  std::optional<std::string> completed_for_;  // the max_duration of the fit in which it was completed
  // Of the groups, when it started. Empty in a later fit than the one in which it was completed, which has rates of its
  // own.
  std::vector<double> rates_;
  std::vector<double> set_rates_;  // what the groups got from this last
};

}  // namespace composer::algorithms
