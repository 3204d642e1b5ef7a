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

// Sets the learning rates: the rates before any schedule times the product of the schedules at the state's timestamp.
// Applied whenever the timestamp moves, so the current rates are always those of the next batch.
class SchedulePlan {
 public:
  SchedulePlan() = default;
  // Throws ConfigError for a null schedule. With `every_batch` false, the rates during an epoch are those of its first
  // batch.
  SchedulePlan(std::vector<optim::Scheduler> schedulers, double scale_schedule_ratio, bool every_batch);

  // Does nothing without schedules. Throws ConfigError if a schedule returns an invalid rate (NaN, infinite, negative).
  // If max_duration is reached, the rates stay as they are instead, because no batch is trained with the invalid one.
  void apply(State& state) const;
  // The rates that apply() sets; if it does nothing, the rates before any schedule.
  std::vector<double> rates(const State& state) const;
  // Throws what apply() would throw for the first batch of a fit from `from` to `until`, without changing anything.
  // Warns of a first epoch that would be trained with a rate of 0.
  void check(const Timestamp& from, OptionalTime until, std::optional<std::int64_t> dataloader_len) const;
  // The factors of the rates at the first batch and at some later batches of such a fit, as text. Functions cannot be
  // compared, but their values can.
  std::string outline(const Timestamp& from, OptionalTime until, std::optional<std::int64_t> dataloader_len) const;
  // Throws ConfigError if a schedule depends on tokens, that is, if its rate would change after some tokens.
  void check_without_tokens(const State& state) const;
  // Sets the learning rate of each parameter group to its rate before any schedule.
  void withdraw(torch::optim::Optimizer& optimizer) const;
  void begin_run() const;  // resets stateful schedules
  void set_base(std::vector<double> base) { base_ = std::move(base); }
  const std::vector<double>& base() const { return base_; }
  // Whether the caller ends the fit; schedules then see a run without an end.
  void set_endless(bool endless) { endless_ = endless; }
  // Throws ConfigError if a schedule depends on metrics that this fit does not have.
  void check_fit(const FitOutline& fit, const State& state) const;
  // Called when metrics with this label are in the state. Informs the schedules that depend on them, and applies the
  // new rates.
  void observe(State& state, const std::string& label) const;
  void visit_state(StateVisitor& visit) const;

 private:
  // The product of the schedules; unset if a rate after the end of the run is invalid.
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
