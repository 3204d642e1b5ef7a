#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "composer/core/error.h"
#include "composer/optim/curves.h"
#include "composer/optim/schedulers.h"

namespace composer::optim {
namespace {

using detail::described, detail::elapsed, detail::half_cosine, detail::line, detail::milestones_option, detail::named,
    detail::power_curve, detail::steps_down, detail::time_option;

// The length of the run, in the unit in which its warm-ups are counted.
Time length_of_run(const ScheduleContext& context) {
  const Time run = context.max_duration;
  if (run.unit() != TimeUnit::EPOCH || !context.dataloader_len) return run;
  return Time(run.count(), TimeUnit::BATCH) * *context.dataloader_len;
}

class WarmUp {
 public:
  WarmUp(std::string_view who, Time t_warmup, bool scaled) : who_(who), t_warmup_(t_warmup), scaled_(scaled) {}

  std::string_view who() const { return who_; }
  // The length of the warm-up, after which the main schedule starts.
  Time length(const ScheduleContext& context) const {
    return resolve(t_warmup_, context, scaled_ ? context.scale_schedule_ratio : 1);
  }

  // The share of the warm-up that has elapsed; nullopt after its end.
  std::optional<double> progress(Time length, const ScheduleContext& context) const {
    if (length.count() == 0) warn_once();
    if (const Time run = length_of_run(context); length.unit() == run.unit() && length > run)
      warn_of_end(context.max_duration);
    if (context.timestamp.reached(length)) return std::nullopt;
    return elapsed(length, context, t_warmup_);
  }

 private:
  void warn_once() const {
    if (warned_->exchange(true)) return;
    warn(join(who_, ": t_warmup ", t_warmup_,
              " is 0 in this run, so there is no warm-up. A fraction of the run is converted ",
              "to the unit of max_duration and rounded down, and so is a warm-up that is scaled."));
  }

  void warn_of_end(Time max_duration) const {
    if (warned_->exchange(true)) return;
    warn(join(who_, ": t_warmup ", t_warmup_, " is longer than the run, whose max_duration is ", max_duration,
              ", so the learning rate does not reach its peak"));
  }

  std::string_view who_;
  Time t_warmup_;
  bool scaled_;
  std::shared_ptr<std::atomic<bool>> warned_ = std::make_shared<std::atomic<bool>>(false);
};

template <class O>
auto scale_option(bool O::*member) {
  return option("scale_warmup", member).shown([](bool scales) { return static_cast<std::int64_t>(scales); });
}

// Throws unless the schedule is defined for the whole run, as far as this can be determined.
void check_covers_run(std::string_view who, Time t_max, const ScheduleContext& context) {
  const Time run = length_of_run(context);
  if (t_max.unit() != run.unit() || t_max >= run) return;
  throw ConfigError(who, ": t_max must cover max_duration, got ", t_max, " for a run of ", context.max_duration);
}

// A warm-up to `peak`, then `curve` of the elapsed share of the time between the warm-up and t_max.
template <class Curve>
Scheduler with_warmup(WarmUp warmup, double peak, Time t_max, Curve curve) {
  return [warmup = std::move(warmup), peak, t_max, curve](const ScheduleContext& context) {
    const Time start = warmup.length(context);
    const Time end = resolve(t_max, context, context.scale_schedule_ratio);
    if (start.unit() != end.unit()) {
      throw ConfigError(warmup.who(), ": t_warmup and t_max must have the same unit, got ", start, " and ", end);
    }
    check_covers_run(warmup.who(), end, context);
    if (const auto x = warmup.progress(start, context)) return line(*x, 0, peak);
    const Time since = context.timestamp.get(start.unit()) - start;
    return curve(end > start ? std::min(1.0, since.as_double() / (end - start).as_double()) : 0.0);
  };
}

}  // namespace

Scheduler multi_step_with_warmup(MultiStepWithWarmupOptions options) {
  using O = MultiStepWithWarmupOptions;
  std::string text = described("multi_step_with_warmup", options,
                               all_options(time_option("t_warmup", &O::t_warmup), milestones_option(&O::milestones),
                                           option("gamma", &O::gamma), scale_option(&O::scale_warmup)));
  WarmUp warmup("multi_step_with_warmup", options.t_warmup, options.scale_warmup);
  return named(std::move(text), [options, warmup = std::move(warmup)](const ScheduleContext& context) {
    if (const auto x = warmup.progress(warmup.length(context), context)) return *x;
    return steps_down(options.milestones, options.gamma, context);
  });
}

Scheduler constant_with_warmup(ConstantWithWarmupOptions options) {
  using O = ConstantWithWarmupOptions;
  std::string text = described("constant_with_warmup", options,
                               all_options(time_option("t_warmup", &O::t_warmup), option("alpha", &O::alpha),
                                           time_option("t_max", &O::t_max), scale_option(&O::scale_warmup)));
  WarmUp warmup("constant_with_warmup", options.t_warmup, options.scale_warmup);
  return named(std::move(text), with_warmup(std::move(warmup), options.alpha, options.t_max,
                                            [alpha = options.alpha](double) { return alpha; }));
}

Scheduler linear_with_warmup(LinearWithWarmupOptions options) {
  using O = LinearWithWarmupOptions;
  std::string text = described(
      "linear_with_warmup", options,
      all_options(time_option("t_warmup", &O::t_warmup), option("alpha_i", &O::alpha_i), option("alpha_f", &O::alpha_f),
                  time_option("t_max", &O::t_max), scale_option(&O::scale_warmup)));
  WarmUp warmup("linear_with_warmup", options.t_warmup, options.scale_warmup);
  return named(std::move(text), with_warmup(std::move(warmup), options.alpha_i, options.t_max,
                                            [options](double x) { return line(x, options.alpha_i, options.alpha_f); }));
}

Scheduler cosine_annealing_with_warmup(CosineAnnealingWithWarmupOptions options) {
  using O = CosineAnnealingWithWarmupOptions;
  std::string text = described("cosine_annealing_with_warmup", options,
                               all_options(time_option("t_warmup", &O::t_warmup), time_option("t_max", &O::t_max),
                                           option("alpha_f", &O::alpha_f), scale_option(&O::scale_warmup)));
  WarmUp warmup("cosine_annealing_with_warmup", options.t_warmup, options.scale_warmup);
  return named(std::move(text), with_warmup(std::move(warmup), 1, options.t_max,
                                            [alpha_f = options.alpha_f](double x) { return half_cosine(x, alpha_f); }));
}

Scheduler polynomial_with_warmup(PolynomialWithWarmupOptions options) {
  using O = PolynomialWithWarmupOptions;
  std::string text = described(
      "polynomial_with_warmup", options,
      all_options(time_option("t_warmup", &O::t_warmup), option("power", &O::power).above(0),
                  time_option("t_max", &O::t_max), option("alpha_f", &O::alpha_f), scale_option(&O::scale_warmup)));
  WarmUp warmup("polynomial_with_warmup", options.t_warmup, options.scale_warmup);
  return named(std::move(text), with_warmup(std::move(warmup), 1, options.t_max, [options](double x) {
                 return power_curve(x, options.power, options.alpha_f);
               }));
}

}  // namespace composer::optim
