#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/state.h"
#include "composer/optim/schedule.h"

namespace composer {

class StateVisitor;

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

  void apply(State& state) const;  // does nothing without schedules, or before it is known how long the run lasts
  // The fit lasts until its caller ends it: schedules see a run without an end.
  void set_endless(bool endless) { endless_ = endless; }
  // The product of the schedules; 1 if there are none, or it is not known how long the run lasts.
  double factor(const Timestamp& now, OptionalTime max_duration, std::optional<std::int64_t> dataloader_len) const;
  // Throws ConfigError if a schedule follows the metrics of a label that is not among these.
  void check_labels(const std::vector<std::string>& labels) const;
  // After metrics of this label are in the state: tells the schedules that follow them, and applies what they make of
  // it.
  void observe(State& state, const std::string& label) const;
  void visit_state(StateVisitor& visit) const;

 private:
  std::vector<optim::Scheduler> schedulers_;
  double ratio_ = 1;
  bool every_batch_ = true;
  bool endless_ = false;
  std::vector<double> base_;
};

}  // namespace composer
