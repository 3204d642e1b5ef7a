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

using detail::check_length, detail::check_positive, detail::check_time, detail::elapsed, detail::half_cosine,
    detail::line, detail::named, detail::power_curve, detail::steps_down, detail::with_options;

// The share of `length`, stretched with the schedule, that has passed; at most 1.
double progress(Time length, const ScheduleContext& context) {
  return std::min(1.0, elapsed(resolve(length, context, context.scale_schedule_ratio), context, length));
}

}  // namespace

Scheduler constant(ConstantOptions options) {
  check_time("constant", "t_max", options.t_max);
  std::string text = with_options("constant", "alpha", options.alpha, "t_max", options.t_max);
  return named(std::move(text), [options](const ScheduleContext& context) {
    const Time t_max = resolve(options.t_max, context, context.scale_schedule_ratio);
    return context.timestamp.reached(t_max) ? 1.0 : options.alpha;
  });
}

Scheduler linear(LinearOptions options) {
  check_length("linear", "t_max", options.t_max);
  std::string text =
      with_options("linear", "alpha_i", options.alpha_i, "alpha_f", options.alpha_f, "t_max", options.t_max);
  return named(std::move(text), [options](const ScheduleContext& context) {
    return line(progress(options.t_max, context), options.alpha_i, options.alpha_f);
  });
}

Scheduler exponential(ExponentialOptions options) {
  check_positive("exponential", "gamma", options.gamma);
  check_length("exponential", "decay_period", options.decay_period);
  std::string text = with_options("exponential", "gamma", options.gamma, "decay_period", options.decay_period);
  return named(std::move(text), [options](const ScheduleContext& context) {
    const Time period = resolve(options.decay_period, context, context.scale_schedule_ratio);
    return std::pow(options.gamma, elapsed(period, context, options.decay_period));
  });
}

Scheduler step(StepOptions options) {
  check_length("step", "step_size", options.step_size);
  std::string text = with_options("step", "step_size", options.step_size, "gamma", options.gamma);
  return named(std::move(text), [options](const ScheduleContext& context) {
    const Time size = resolve(options.step_size, context, context.scale_schedule_ratio);
    return std::pow(options.gamma, std::floor(elapsed(size, context, options.step_size)));
  });
}

Scheduler multi_step(MultiStepOptions options) {
  for (Time milestone : options.milestones) check_time("multi_step", "each of the milestones", milestone);
  std::string text = with_options("multi_step", "milestones", options.milestones, "gamma", options.gamma);
  return named(std::move(text), [options](const ScheduleContext& context) {
    return steps_down(options.milestones, options.gamma, context);
  });
}

Scheduler cosine_annealing(CosineAnnealingOptions options) {
  check_length("cosine_annealing", "t_max", options.t_max);
  std::string text = with_options("cosine_annealing", "t_max", options.t_max, "alpha_f", options.alpha_f);
  return named(std::move(text), [options](const ScheduleContext& context) {
    return half_cosine(progress(options.t_max, context), options.alpha_f);
  });
}

Scheduler cosine_annealing_warm_restarts(CosineAnnealingWarmRestartsOptions options) {
  check_length("cosine_annealing_warm_restarts", "t_0", options.t_0);
  if (!(options.t_mult >= 0)) {
    throw ConfigError("cosine_annealing_warm_restarts: t_mult must be >= 0, got ", options.t_mult);
  }
  std::string text = with_options("cosine_annealing_warm_restarts", "t_0", options.t_0, "t_mult", options.t_mult,
                                  "alpha_f", options.alpha_f);
  return named(std::move(text), [options](const ScheduleContext& context) {
    constexpr double kLongest = 1e18;
    const Time t_0 = resolve(options.t_0, context, context.scale_schedule_ratio);
    std::int64_t length = t_0.count();
    std::int64_t since = context.timestamp.get(t_0.unit()).count();  // the start of the cycle
    while (since >= length) {
      if (length == 0) {
        throw ConfigError("cosine_annealing_warm_restarts: with t_0 ", t_0, " and t_mult ", options.t_mult,
                          " the length of a cycle has become 0; use a larger t_mult");
      }
      const double next = std::min(options.t_mult * static_cast<double>(length), kLongest);
      if (static_cast<std::int64_t>(next) == length) {  // so will be all others
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
  check_positive("polynomial", "power", options.power);
  check_length("polynomial", "t_max", options.t_max);
  std::string text =
      with_options("polynomial", "power", options.power, "t_max", options.t_max, "alpha_f", options.alpha_f);
  return named(std::move(text), [options](const ScheduleContext& context) {
    return power_curve(progress(options.t_max, context), options.power, options.alpha_f);
  });
}

}  // namespace composer::optim
