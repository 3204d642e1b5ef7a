#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer {
class StateVisitor;
struct State;
}  // namespace composer

namespace composer::optim {

// What a learning rate depends on: where training is, and how long it and its epochs are.
struct ScheduleContext {
  Timestamp timestamp;
  Time max_duration = Time(0, TimeUnit::EPOCH);
  std::optional<std::int64_t> dataloader_len;  // batches an epoch, if known
  double scale_schedule_ratio = 1;             // stretches the schedule, without its warm-up
};

// A schedule that follows what is measured, and so has a memory: its multiplier is what the last values have made it.
// Used by one trainer at a time, on the thread that drives it.
class COMPOSER_EXPORT MetricSchedule {
 public:
  virtual ~MetricSchedule();
  // Of the evaluator whose metrics it follows, or of the training loader.
  virtual const std::string& dataloader_label() const = 0;
  // After each evaluation of that label in a fit, or, for the training loader, at the end of each epoch. The values are
  // in state.metrics; reading them waits for the device. Throws ConfigError if what it follows is not among them.
  virtual void observe(const State& state) = 0;
  virtual double multiplier(const ScheduleContext& now) const = 0;
  virtual void visit_state(StateVisitor& visit);  // what a checkpoint keeps: nothing by default
  virtual void begin_run();  // a trainer is made with it: what another one has measured is over. Nothing by default
};

// A multiplier of the optimizer's learning rates: a pure function, so there is nothing to step, save or replay; or a
// schedule that follows a metric, shared by all copies.
class COMPOSER_EXPORT Scheduler {
 public:
  Scheduler() = default;  // none
  // Takes every type, so that the compiler names this option and not the whole of the options.
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, Scheduler> &&
           !std::same_as<std::remove_cvref_t<F>, std::vector<Scheduler>>) Scheduler(F&& function) {
    constexpr bool kFits = std::is_invocable_r_v<double, F&, const ScheduleContext&>;
    static_assert(kFits,
                  "a schedule is a function double(const ScheduleContext&), or a shared_ptr to a MetricSchedule");
    if constexpr (kFits) function_ = std::forward<F>(function);
  }
  template <std::derived_from<MetricSchedule> T>
  Scheduler(std::shared_ptr<T> schedule) : metric_(std::move(schedule)) {}

  explicit operator bool() const { return metric_ || function_; }
  double operator()(const ScheduleContext& now) const { return metric_ ? metric_->multiplier(now) : function_(now); }
  MetricSchedule* metric_schedule() const { return metric_.get(); }  // null: a function

 private:
  std::function<double(const ScheduleContext&)> function_;
  std::shared_ptr<MetricSchedule> metric_;
};

// `time` as a count of what training counts in this run: a share of a run of epochs, and epochs, become batches; a
// share of any other run is counted in that run's unit. All but shares are stretched by `ratio`; fractions are cut off.
// Throws ConfigError for seconds, and where the length of an epoch is needed but unknown.
COMPOSER_EXPORT Time resolve(Time time, const ScheduleContext& context, double ratio);

}  // namespace composer::optim
