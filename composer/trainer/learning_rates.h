#pragma once
#include <optional>
#include <vector>

#include "composer/core/state.h"
#include "composer/trainer/schedule_plan.h"

namespace composer {

// The learning rates of a trainer: those of each parameter group before any schedule, the schedules that multiply them,
// and what the program has set in between.
class LearningRates {
 public:
  // The optimizer has come with its rates.
  void begin(const torch::optim::Optimizer& optimizer);
  // A run begins with these schedules.
  void begin(SchedulePlan schedules, State& state);
  // After AFTER_LOAD: until then algorithms may add groups, and set rates, which are then not those of the schedules.
  void read(State& state);
  // What the trainer has set last: other rates are the program's.
  void leave(const State& state);

  // Those of a fit that begins: rates that the program has set are those before any schedule from now on. Without
  // `schedules` these go on.
  LearningRates of_fit(const State& state, std::optional<SchedulePlan> schedules) const;
  LearningRates of_trial() const;  // before any schedule

  SchedulePlan& schedules() { return schedules_; }
  const SchedulePlan& schedules() const { return schedules_; }
  const std::vector<double>& base() const { return schedules_.base(); }  // before any schedule
  const std::vector<double>& made() const { return made_; }              // the same when the trainer was made

 private:
  SchedulePlan schedules_;
  std::vector<double> made_, left_;
};

}  // namespace composer
