#include "composer/optim/curves.h"

#include <cmath>
#include <numbers>

#include "composer/core/error.h"

namespace composer::optim::detail {

std::string to_text(const std::vector<Time>& times) {
  std::string text;
  for (Time time : times) text += join(text.empty() ? "" : " ", time);
  return text;
}

double elapsed(Time length, const ScheduleContext& context, Time given) {
  if (length.count() == 0) throw ConfigError("schedule: ", given, " is ", length, " in this run; give a longer time");
  return context.timestamp.get(length.unit()).as_double() / length.as_double();
}

double line(double x, double alpha_i, double alpha_f) { return alpha_i + x * (alpha_f - alpha_i); }

double half_cosine(double x, double alpha_f) {
  return alpha_f + (1 - alpha_f) * (1 + std::cos(x * std::numbers::pi)) / 2;
}

double power_curve(double x, double power, double alpha_f) { return alpha_f + (1 - alpha_f) * std::pow(1 - x, power); }

double steps_down(const std::vector<Time>& milestones, double gamma, const ScheduleContext& context) {
  double alpha = 1;
  for (Time milestone : milestones) {
    if (context.timestamp.reached(resolve(milestone, context, context.scale_schedule_ratio))) alpha *= gamma;
  }
  return alpha;
}

}  // namespace composer::optim::detail
