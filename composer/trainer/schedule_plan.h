#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/state.h"
#include "composer/optim/schedule.h"

namespace torch::optim {
class Optimizer;
}

namespace composer {

class StateVisitor;
struct FitOutline;

// Sets the learning rates: those the optimizer came with times the product of the schedules at the state's timestamp.
// Applied whenever the timestamp moves, so the rates in force are always those of the batch that comes next.
class SchedulePlan {
 public:
  SchedulePlan() = default;
  // Throws ConfigError for a schedule that is null. `every_batch` false: the rates of an epoch are those of its first
  // batch.
  SchedulePlan(std::vector<optim::Scheduler> schedulers, double scale_schedule_ratio, bool every_batch);

  // Does nothing without schedules. Throws ConfigError for a schedule that gives no rate (NaN, infinite, negative),
  // unless max_duration is reached, because then no batch is trained with it: the rates stay as they are.
  void apply(State& state) const;
  // What apply() sets the groups' rates to; those before any schedule if it does nothing.
  std::vector<double> rates(const State& state) const;
  // Throws what apply() would throw for the first batch of a fit from `from` to `until`; changes nothing. Warns of a
  // first epoch that would train with a rate of 0.
  void check(const Timestamp& from, OptionalTime until, std::optional<std::int64_t> dataloader_len) const;
  // By what the rates are multiplied at the first batch and some later ones of such a fit, as text: functions cannot be
  // compared, but what they give can.
  std::string outline(const Timestamp& from, OptionalTime until, std::optional<std::int64_t> dataloader_len) const;
  // Throws ConfigError if a schedule follows tokens: would give another rate after some.
  void check_without_tokens(const State& state) const;
  // Sets the learning rate of each parameter group before any schedule.
  void withdraw(torch::optim::Optimizer& optimizer) const;
  void begin_run() const;  // schedules with a memory begin without one
  void set_base(std::vector<double> base) { base_ = std::move(base); }
  const std::vector<double>& base() const { return base_; }
  // The fit lasts until its caller ends it: schedules see a run without an end.
  void set_endless(bool endless) { endless_ = endless; }
  // Throws ConfigError if a schedule follows metrics that this fit does not have.
  void check_fit(const FitOutline& fit, const State& state) const;
  // After metrics of this label are in the state: tells the schedules that follow them, and applies what they make of
  // it.
  void observe(State& state, const std::string& label) const;
  void visit_state(StateVisitor& visit) const;

 private:
  // The product of the schedules; unset for no rate after the end of the run.
  std::optional<double> factor(const optim::ScheduleContext& now) const;
  std::optional<optim::ScheduleContext> context(const Timestamp& at, OptionalTime until,
                                                std::optional<std::int64_t> dataloader_len) const;

  std::vector<optim::Scheduler> schedulers_;
  double ratio_ = 1;
  bool every_batch_ = true;
  bool endless_ = false;
  std::vector<double> base_;
};

}  // namespace composer
