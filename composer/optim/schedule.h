#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
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
struct FitOutline;
struct State;
}  // namespace composer

namespace composer::optim {

// The max_duration of a fit that lasts until end().
inline constexpr Time kEndless(std::numeric_limits<std::int64_t>::max(), TimeUnit::BATCH);

// The inputs of a schedule: the position of the run, its duration and the length of its epochs.
struct ScheduleContext {
  Timestamp timestamp;
  Time max_duration = Time(0, TimeUnit::EPOCH);
  std::optional<std::int64_t> dataloader_len;  // batches per epoch, if known
  double scale_schedule_ratio = 1;             // stretches the schedule, but not its warm-up
};

// A stateful schedule, whose multiplier depends on the values of a metric so far. Used by one trainer at a time, on
// that trainer's thread.
class COMPOSER_EXPORT MetricSchedule {
 public:
  virtual ~MetricSchedule();
  // The label of the evaluator whose metrics the schedule follows, or of the training loader.
  virtual const std::string& dataloader_label() const = 0;
  // Called after each evaluation of that label in a fit or, for the training loader, at the end of each epoch. The
  // values are in state.metrics; reading them waits for the device. Throws ConfigError if the metric is not among them.
  virtual void observe(const State& state) = 0;
  virtual double multiplier(const ScheduleContext& now) const = 0;
  // Like Callback::check_fit(). The label has been checked before.
  virtual void check_fit(const FitOutline& fit, const State& state) const;
  virtual void visit_state(StateVisitor& visit);  // lists the fields to save: none by default
  virtual void begin_run();  // called for each new trainer; resets the state. Does nothing by default
};

// A multiplier of the optimizer's learning rates. It is either a pure function, which needs no stepping, saving or
// replaying, or a MetricSchedule, which all copies share.
class COMPOSER_EXPORT Scheduler {
 public:
  Scheduler() = default;  // no schedule
  // Accepts any type, so that a compile error names this option and not the whole options struct.
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
  MetricSchedule* metric_schedule() const { return metric_.get(); }  // null: the schedule is a function

  // Sets the text for logs and checkpoints, such as linear(alpha_i=1, alpha_f=0, t_max=1.0dur). The default is "a
  // function", or the class of the MetricSchedule.
  Scheduler named(std::string text) && {
    text_ = std::move(text);
    return std::move(*this);
  }
  std::string to_string() const;

 private:
  std::function<double(const ScheduleContext&)> function_;
  std::shared_ptr<MetricSchedule> metric_;
  std::string text_;
};

// Converts `time` to a count for this run. Epochs, and shares of a run whose duration is in epochs, become batches;
// shares of other runs become counts in the run's unit. `ratio` stretches everything but shares; fractions are cut off.
// Throws ConfigError for seconds, and if the length of an epoch is needed but unknown.
COMPOSER_EXPORT Time resolve(Time time, const ScheduleContext& context, double ratio);

}  // namespace composer::optim
