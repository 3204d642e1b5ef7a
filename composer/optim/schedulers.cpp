#include "composer/optim/schedulers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "composer/core/error.h"
#include "composer/optim/curves.h"

namespace composer::optim {
namespace {

using detail::described, detail::elapsed, detail::half_cosine, detail::length_option, detail::line,
    detail::milestones_option, detail::named, detail::power_curve, detail::steps_down, detail::time_option;

// The share of `length`, stretched with the schedule, that has elapsed; at most 1.
double progress(Time length, const ScheduleContext& context) {
  return std::min(1.0, elapsed(resolve(length, context, context.scale_schedule_ratio), context, length));
}

}  // namespace

Scheduler constant(ConstantOptions options) {
  using O = ConstantOptions;
  std::string text =
      described("constant", options, all_options(option("alpha", &O::alpha), time_option("t_max", &O::t_max)));
  return named(std::move(text), [options](const ScheduleContext& context) {
    const Time t_max = resolve(options.t_max, context, context.scale_schedule_ratio);
    return context.timestamp.reached(t_max) ? 1.0 : options.alpha;
  });
}

Scheduler linear(LinearOptions options) {
  using O = LinearOptions;
  std::string text = described(
      "linear", options,
      all_options(option("alpha_i", &O::alpha_i), option("alpha_f", &O::alpha_f), length_option("t_max", &O::t_max)));
  return named(std::move(text), [options](const ScheduleContext& context) {
    return line(progress(options.t_max, context), options.alpha_i, options.alpha_f);
  });
}

Scheduler exponential(ExponentialOptions options) {
  using O = ExponentialOptions;
  std::string text =
      described("exponential", options,
                all_options(option("gamma", &O::gamma).above(0), length_option("decay_period", &O::decay_period)));
  return named(std::move(text), [options](const ScheduleContext& context) {
    const Time period = resolve(options.decay_period, context, context.scale_schedule_ratio);
    return std::pow(options.gamma, elapsed(period, context, options.decay_period));
  });
}

Scheduler step(StepOptions options) {
  using O = StepOptions;
  std::string text =
      described("step", options, all_options(length_option("step_size", &O::step_size), option("gamma", &O::gamma)));
  return named(std::move(text), [options](const ScheduleContext& context) {
    const Time size = resolve(options.step_size, context, context.scale_schedule_ratio);
    return std::pow(options.gamma, std::floor(elapsed(size, context, options.step_size)));
  });
}

Scheduler multi_step(MultiStepOptions options) {
  using O = MultiStepOptions;
  std::string text =
      described("multi_step", options, all_options(milestones_option(&O::milestones), option("gamma", &O::gamma)));
  return named(std::move(text), [options](const ScheduleContext& context) {
    return steps_down(options.milestones, options.gamma, context);
  });
}

Scheduler cosine_annealing(CosineAnnealingOptions options) {
  using O = CosineAnnealingOptions;
  std::string text = described("cosine_annealing", options,
                               all_options(length_option("t_max", &O::t_max), option("alpha_f", &O::alpha_f)));
  return named(std::move(text), [options](const ScheduleContext& context) {
    return half_cosine(progress(options.t_max, context), options.alpha_f);
  });
}

Scheduler cosine_annealing_warm_restarts(CosineAnnealingWarmRestartsOptions options) {
  using O = CosineAnnealingWarmRestartsOptions;
  std::string text = described("cosine_annealing_warm_restarts", options,
                               all_options(length_option("t_0", &O::t_0), option("t_mult", &O::t_mult).at_least(0),
                                           option("alpha_f", &O::alpha_f)));
  return named(std::move(text), [options](const ScheduleContext& context) {
    constexpr double kLongest = 1e18;
    const Time t_0 = resolve(options.t_0, context, context.scale_schedule_ratio);
    std::int64_t length = t_0.count();
    std::int64_t since = context.timestamp.get(t_0.unit()).count();  // time since the start of the current cycle
    while (since >= length) {
      if (length == 0) {
        throw ConfigError("cosine_annealing_warm_restarts: with t_0 ", t_0, " and t_mult ", options.t_mult,
                          " the length of a cycle has become 0; use a larger t_mult");
      }
      const double next = std::min(options.t_mult * static_cast<double>(length), kLongest);
      if (static_cast<std::int64_t>(next) == length) {  // all further cycles have this length
        since %= length;
        break;
      }
      since -= length;
      length = static_cast<std::int64_t>(next);
    }
    return half_cosine(static_cast<double>(since) / static_cast<double>(length), options.alpha_f);
  });
}

Scheduler polynomial(PolynomialOptions options) {
  using O = PolynomialOptions;
  std::string text = described("polynomial", options,
                               all_options(option("power", &O::power).above(0), length_option("t_max", &O::t_max),
                                           option("alpha_f", &O::alpha_f)));
  return named(std::move(text), [options](const ScheduleContext& context) {
    return power_curve(progress(options.t_max, context), options.power, options.alpha_f);
  });
}

}  // namespace composer::optim
