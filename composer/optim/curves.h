// Building blocks of the schedules. Internal.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/optim/schedule.h"
#include "composer/util/exact_text.h"

namespace composer::optim::detail {

// Check options of a schedule: throw ConfigError if a time is in seconds or negative; a length also if it is 0.
void check_time(std::string_view who, std::string_view option, Time time);
void check_length(std::string_view who, std::string_view option, Time time);
void check_positive(std::string_view who, std::string_view option, double value);

// with_options("linear", "alpha_i", 1, "t_max", Time("1dur")) is "linear(alpha_i=1, t_max=1.0dur)".
std::string to_text(const std::vector<Time>& times);
inline std::string to_text(double value) { return util::exact_text(value); }
template <class T>
T to_text(const T& value) {
  return value;
}
inline std::string with_options(std::string text) { return text + ')'; }
template <class T, class... Rest>
std::string with_options(std::string text, const char* name, const T& value, const Rest&... rest) {
  const char* before = text.find('(') == std::string::npos ? "(" : ", ";
  return with_options(join(text, before, name, '=', to_text(value)), rest...);
}

inline Scheduler named(std::string text, Scheduler schedule) { return std::move(schedule).named(std::move(text)); }

// t / length, >= 0. Throws ConfigError for a length of 0; the message says that it was computed from `given`.
double elapsed(Time length, const ScheduleContext& context, Time given);

// Each function is 1 at x = 0 and alpha_f at x = 1.
double line(double x, double alpha_i, double alpha_f);
double half_cosine(double x, double alpha_f);
double power_curve(double x, double power, double alpha_f);

double steps_down(const std::vector<Time>& milestones, double gamma, const ScheduleContext& context);

}  // namespace composer::optim::detail
