#pragma once
#include <utility>
#include <vector>

#include "composer/core/state.h"
#include "composer/optim/schedule.h"

namespace composer {

// Sets the learning rates: those the optimizer came with times the product of the schedules at the state's timestamp.
// Applied whenever the timestamp moves, so the rates in force are always those of the batch that comes next.
class SchedulePlan {
 public:
  SchedulePlan() = default;
  // `base` holds the learning rate of each parameter group before any schedule.
  // `every_batch` false: the rates of an epoch are those of its first batch.
  SchedulePlan(std::vector<optim::Scheduler> schedulers, double scale_schedule_ratio, bool every_batch,
               std::vector<double> base)
      : schedulers_(std::move(schedulers)),
        ratio_(scale_schedule_ratio),
        every_batch_(every_batch),
        base_(std::move(base)) {}

  void apply(State& state) const;  // does nothing without schedules

 private:
  std::vector<optim::Scheduler> schedulers_;
  double ratio_ = 1;
  bool every_batch_ = true;
  std::vector<double> base_;
};

}  // namespace composer
