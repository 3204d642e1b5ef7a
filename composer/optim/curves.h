// Building blocks of the schedules. Internal.
#pragma once
#include <string_view>
#include <vector>

#include "composer/optim/schedule.h"

namespace composer::optim::detail {

// Check options of a schedule: throw ConfigError if a time is in seconds or negative; a length also if it is 0.
void check_time(std::string_view who, std::string_view option, Time time);
void check_length(std::string_view who, std::string_view option, Time time);
void check_positive(std::string_view who, std::string_view option, double value);

// t / length, >= 0. Throws ConfigError for a length of 0; the message says that it was computed from `given`.
double elapsed(Time length, const ScheduleContext& context, Time given);

// Each function is 1 at x = 0 and alpha_f at x = 1.
double line(double x, double alpha_i, double alpha_f);
double half_cosine(double x, double alpha_f);
double power_curve(double x, double power, double alpha_f);

double steps_down(const std::vector<Time>& milestones, double gamma, const ScheduleContext& context);

}  // namespace composer::optim::detail
