#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/core/time.h"
#include "composer/optim/schedule.h"

// Composer's schedules, one for each options struct. t is the timestamp's count in the unit of the time that it is
// compared with. Times are >= 0, in any unit but seconds. Invalid options are rejected when a schedule is created;
// options that are invalid only for a given run (a length of 0 after rounding, an unknown epoch length) are rejected by
// its first call. Both throw ConfigError.
namespace composer::optim {

// alpha until t_max, then 1.
struct ConstantOptions {
  double alpha = 1;     // multiplier until t_max
  Time t_max = "1dur";  // >= 0; the multiplier is 1 afterwards
};
COMPOSER_EXPORT Scheduler constant(ConstantOptions options = {});

// Linear from alpha_i to alpha_f at t_max.
struct LinearOptions {
  double alpha_i = 1;   // multiplier at the start
  double alpha_f = 0;   // multiplier at t_max
  Time t_max = "1dur";  // > 0; end of the curve
};
COMPOSER_EXPORT Scheduler linear(LinearOptions options = {});

// gamma ^ (t / decay_period)
struct ExponentialOptions {
  double gamma = 0;           // required: > 0; factor per decay_period
  Time decay_period = "1ep";  // > 0
};
COMPOSER_EXPORT Scheduler exponential(ExponentialOptions options);

// gamma ^ floor(t / step_size)
struct StepOptions {
  Time step_size;      // required: > 0; length of a step
  double gamma = 0.1;  // factor of each step
};
COMPOSER_EXPORT Scheduler step(StepOptions options);

// gamma ^ (number of milestones reached); each may have its own unit.
struct MultiStepOptions {
  std::vector<Time> milestones = {};  // times of the steps, each in any unit
  double gamma = 0.1;                 // factor at each milestone
};
COMPOSER_EXPORT Scheduler multi_step(MultiStepOptions options);

// Half a cosine, from 1 to alpha_f at t_max.
struct CosineAnnealingOptions {
  Time t_max = "1dur";  // > 0; end of the curve
  double alpha_f = 0;   // multiplier at t_max
};
COMPOSER_EXPORT Scheduler cosine_annealing(CosineAnnealingOptions options = {});

// A cosine annealing that restarts: the first cycle lasts t_0, each further one t_mult times as long as the previous
// one, rounded down.
struct CosineAnnealingWarmRestartsOptions {
  Time t_0;            // required: > 0; length of the first cycle
  double t_mult = 1;   // >= 0; length of a cycle in lengths of the one before
  double alpha_f = 0;  // multiplier at the end of a cycle
};
COMPOSER_EXPORT Scheduler cosine_annealing_warm_restarts(CosineAnnealingWarmRestartsOptions options);

// alpha_f + (1 - alpha_f) * (1 - t / t_max) ^ power
struct PolynomialOptions {
  double power = 0;     // required: > 0
  Time t_max = "1dur";  // > 0; end of the curve
  double alpha_f = 0;   // multiplier at t_max
};
COMPOSER_EXPORT Scheduler polynomial(PolynomialOptions options);

// The following schedules begin with a linear warm-up from 0 over t_warmup; the main schedule starts at its end.
// scale_schedule_ratio stretches t_max and milestones, and with scale_warmup also the warm-up. Except for
// multi_step_with_warmup, t_warmup and t_max have the same unit, and t_max must cover the run. A warm-up that has a
// length of 0 in a run, or is longer than the run, causes a warning.

struct MultiStepWithWarmupOptions {
  Time t_warmup;                      // required: length of the warm-up, >= 0
  std::vector<Time> milestones = {};  // times of the steps, from the start of training, each in any unit
  double gamma = 0.1;                 // factor at each milestone
  bool scale_warmup = false;          // scale_schedule_ratio also scales the warm-up
};
COMPOSER_EXPORT Scheduler multi_step_with_warmup(MultiStepWithWarmupOptions options);

struct ConstantWithWarmupOptions {
  Time t_warmup;              // required: length of the warm-up, >= 0; in the unit of t_max
  double alpha = 1;           // multiplier until t_max
  Time t_max = "1dur";        // >= 0; the multiplier is 1 afterwards
  bool scale_warmup = false;  // scale_schedule_ratio also scales the warm-up
};
COMPOSER_EXPORT Scheduler constant_with_warmup(ConstantWithWarmupOptions options);

struct LinearWithWarmupOptions {
  Time t_warmup;              // required: length of the warm-up, >= 0; in the unit of t_max
  double alpha_i = 1;         // multiplier at the start
  double alpha_f = 0;         // multiplier at t_max
  Time t_max = "1dur";        // > 0; end of the curve
  bool scale_warmup = false;  // scale_schedule_ratio also scales the warm-up
};
COMPOSER_EXPORT Scheduler linear_with_warmup(LinearWithWarmupOptions options);

struct CosineAnnealingWithWarmupOptions {
  Time t_warmup;              // required: length of the warm-up, >= 0; in the unit of t_max
  Time t_max = "1dur";        // > 0; end of the curve
  double alpha_f = 0;         // multiplier at t_max
  bool scale_warmup = false;  // scale_schedule_ratio also scales the warm-up
};
COMPOSER_EXPORT Scheduler cosine_annealing_with_warmup(CosineAnnealingWithWarmupOptions options);

struct PolynomialWithWarmupOptions {
  Time t_warmup;              // required: length of the warm-up, >= 0; in the unit of t_max
  double power = 2;           // > 0
  Time t_max = "1dur";        // > 0; end of the curve
  double alpha_f = 0;         // multiplier at t_max
  bool scale_warmup = false;  // scale_schedule_ratio also scales the warm-up
};
COMPOSER_EXPORT Scheduler polynomial_with_warmup(PolynomialWithWarmupOptions options);

}  // namespace composer::optim
