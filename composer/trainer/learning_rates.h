#pragma once
#include <optional>
#include <vector>

#include "composer/core/state.h"
#include "composer/trainer/schedule_plan.h"

namespace composer {

// The learning rates of a trainer: the rates of each parameter group before any schedule, the schedules that multiply
// them, and the changes that the program has made in between.
class LearningRates {
 public:
  // Reads the rates of a new optimizer.
  void begin(const torch::optim::Optimizer& optimizer);
  // Begins a run with these schedules.
  void begin(SchedulePlan schedules, State& state);
  // Reads the rates after AFTER_LOAD. Until then algorithms may add parameter groups and set rates, which are then
  // taken as rates before any schedule.
  void read(State& state);
  // Notes the rates that the trainer has set. Rates that differ from them later were set by the program.
  void leave(const State& state);

  // The rates for a fit that begins. Rates that the program has set become the rates before any schedule. Without
  // `schedules` the present schedules continue.
  LearningRates of_fit(const State& state, std::optional<SchedulePlan> schedules) const;
  LearningRates of_trial() const;  // the rates before any schedule, without schedules

  SchedulePlan& schedules() { return schedules_; }
  const SchedulePlan& schedules() const { return schedules_; }
  const std::vector<double>& base() const { return schedules_.base(); }  // rates before any schedule
  const std::vector<double>& made() const { return made_; }  // rates before any schedule when the trainer was made

 private:
  SchedulePlan schedules_;
  std::vector<double> made_, left_;
};

}  // namespace composer
