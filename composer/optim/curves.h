// What the schedules are made of. Internal.
#pragma once
#include <string_view>
#include <vector>

#include "composer/optim/schedule.h"

namespace composer::optim::detail {

// For the options of a schedule: throw ConfigError if a time is in seconds or negative, a length also if it is 0.
void check_time(std::string_view who, std::string_view option, Time time);
void check_length(std::string_view who, std::string_view option, Time time);
void check_positive(std::string_view who, std::string_view option, double value);

// t / length, >= 0. Throws ConfigError for a length of 0, and says that it was made of `given`.
double elapsed(Time length, const ScheduleContext& context, Time given);

// Each is at 1 where x is 0 and at alpha_f where x is 1.
double line(double x, double alpha_i, double alpha_f);
double half_cosine(double x, double alpha_f);
double power_curve(double x, double power, double alpha_f);

double steps_down(const std::vector<Time>& milestones, double gamma, const ScheduleContext& context);

}  // namespace composer::optim::detail
