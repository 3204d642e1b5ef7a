#include "tests/replay/rates.h"

#include <utility>

#include "composer/core/state.h"
#include "tests/replay/make.h"

namespace composer::replay {

double factor_at(const std::vector<optim::Scheduler>& schedulers, optim::ScheduleContext at, bool every_batch) {
  Timestamp& t = at.timestamp;
  if (!every_batch) t.batch -= t.batch_in_epoch, t.sample -= t.sample_in_epoch, t.token -= t.token_in_epoch;
  double factor = 1;
  for (const auto& scheduler : schedulers) factor *= scheduler(at);
  return factor;
}

optim::ScheduleContext context_of(const State& state, double scale_schedule_ratio) {
  return {state.timestamp, *state.max_duration, state.dataloader_len, scale_schedule_ratio};
}

FactorRecorder::FactorRecorder(const Json& arguments, std::vector<double>& factors)
    : schedulers_(schedulers_of(arguments.value("schedulers", Json::array()))),
      every_batch_(arguments.value("step_schedulers_every_batch", true)),
      factors_(factors) {}

std::vector<double> lagging(std::vector<double> factors) {
  factors.insert(factors.begin(), factors.at(0));
  factors.pop_back();
  return factors;
}

optim::Scheduler schedule_table(std::vector<double> factors) {
  return [factors = std::move(factors)](const optim::ScheduleContext& now) {
    return factors.at(static_cast<std::size_t>(now.timestamp.batch));
  };
}

}  // namespace composer::replay
