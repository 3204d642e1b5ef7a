// Building blocks of the schedules. Internal.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/optim/schedule.h"

namespace composer::optim::detail {

std::string to_text(const std::vector<Time>& times);

// Describe options of schedules, whose times are not in seconds. A time may be 0; a length may not.
template <class O>
auto time_option(std::string name, Time O::*member) {
  return option(std::move(name), member)
      .must("not be in seconds", [](Time time) { return time.unit() != TimeUnit::SECOND; })
      .at_least(0);
}
template <class O>
auto length_option(std::string name, Time O::*member) {
  return time_option(std::move(name), member).above(0);
}
template <class O>
auto milestones_option(std::vector<Time> O::*member) {
  const auto are_times = [](const std::vector<Time>& all) {
    return std::ranges::all_of(all, [](Time time) { return time.unit() != TimeUnit::SECOND && time.as_double() >= 0; });
  };
  return part("milestones", member, "times")
      .must("each be >= 0, and not in seconds", are_times)
      .shown([](const std::vector<Time>& times) { return to_text(times); });
}

// Checks the options, and returns their text: "linear(alpha_i=1, t_max=1.0dur)".
template <class O>
std::string described(const char* who, const O& options, const std::vector<Option<O>>& list) {
  check(options, list, join(who, ": "), "");
  return join(who, '(', text_of(options, list), ')');
}

inline Scheduler named(std::string text, Scheduler schedule) { return std::move(schedule).named(std::move(text)); }

// Returns t / length, >= 0. Throws ConfigError for a length of 0; the message says that it was computed from `given`.
double elapsed(Time length, const ScheduleContext& context, Time given);

// The curves below are 1 at x = 0 and alpha_f at x = 1.
double line(double x, double alpha_i, double alpha_f);
double half_cosine(double x, double alpha_f);
double power_curve(double x, double power, double alpha_f);

double steps_down(const std::vector<Time>& milestones, double gamma, const ScheduleContext& context);

}  // namespace composer::optim::detail
