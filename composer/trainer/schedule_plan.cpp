#include "composer/trainer/schedule_plan.h"

#include "composer/core/error.h"
#include "composer/optim/optimizer.h"

namespace composer {
namespace {

Timestamp start_of_epoch(Timestamp now) {
  now.batch -= std::exchange(now.batch_in_epoch, 0);
  now.sample -= std::exchange(now.sample_in_epoch, 0);
  now.token -= std::exchange(now.token_in_epoch, 0);
  return now;
}

}  // namespace

void SchedulePlan::apply(State& state) const {
  if (schedulers_.empty()) return;
  if (!state.max_duration || !state.optimizer) return;  // until a fit() knows them
  const Timestamp at = every_batch_ ? state.timestamp : start_of_epoch(state.timestamp);
  const optim::ScheduleContext now{at, *state.max_duration, state.dataloader_len, ratio_};
  double factor = 1;
  for (const optim::Scheduler& scheduler : schedulers_) factor *= scheduler(now);
  for (std::size_t group = 0; group < base_.size(); ++group)
    optim::set_learning_rate(*state.optimizer, group, base_[group] * factor);
}

}  // namespace composer
