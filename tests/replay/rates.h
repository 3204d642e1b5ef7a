// The learning rates of a run, worked out from where its state says that it is.
#pragma once
#include <vector>

#include "composer/core/callback.h"
#include "composer/optim/schedule.h"
#include "tests/replay/compare.h"

namespace composer::replay {

// The product of all schedules there. Those that are stepped once an epoch see where it began.
double factor_at(const std::vector<optim::Scheduler>& schedulers, optim::ScheduleContext at, bool every_batch = true);
optim::ScheduleContext context_of(const State& state, double scale_schedule_ratio = 1);

// Notes the factor that a run has to have at each of its batches, and after the last one. `arguments` has "schedulers"
// and "step_schedulers_every_batch".
class FactorRecorder final : public Callback {
 public:
  FactorRecorder(const Json& arguments, std::vector<double>& factors);
  void batch_start(const State& state, Logger&) override { note(state); }
  void fit_end(const State& state, Logger&) override { note(state); }

 private:
  void note(const State& state) { factors_.push_back(factor_at(schedulers_, context_of(state), every_batch_)); }
  std::vector<optim::Scheduler> schedulers_;
  bool every_batch_;
  std::vector<double>& factors_;
};

// As Composer trains with one schedule: batch k has the factor of batch k-1.
std::vector<double> lagging(std::vector<double> factors);
// A schedule that looks its factor up by the number of the batch.
optim::Scheduler schedule_table(std::vector<double> factors);

}  // namespace composer::replay
