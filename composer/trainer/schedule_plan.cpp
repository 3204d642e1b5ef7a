#include "composer/trainer/schedule_plan.h"

#include <algorithm>
#include <limits>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/optim/optimizer.h"

namespace composer {
namespace {

constexpr Time kEndless(std::numeric_limits<std::int64_t>::max(), TimeUnit::BATCH);

Timestamp start_of_epoch(Timestamp now) {
  now.batch -= std::exchange(now.batch_in_epoch, 0);
  now.sample -= std::exchange(now.sample_in_epoch, 0);
  now.token -= std::exchange(now.token_in_epoch, 0);
  return now;
}

}  // namespace

double SchedulePlan::factor(const Timestamp& now, OptionalTime max_duration,
                            std::optional<std::int64_t> dataloader_len) const {
  if (!max_duration && !endless_) return 1;
  const Timestamp at = every_batch_ ? now : start_of_epoch(now);
  const optim::ScheduleContext context{at, max_duration.value_or(kEndless), dataloader_len, ratio_};
  double factor = 1;
  for (const optim::Scheduler& scheduler : schedulers_) factor *= scheduler(context);
  return factor;
}

void SchedulePlan::apply(State& state) const {
  if (schedulers_.empty() || !state.optimizer || (!state.max_duration && !endless_)) return;
  const double factor = this->factor(state.timestamp, state.max_duration, state.dataloader_len);
  for (std::size_t group = 0; group < base_.size(); ++group)
    optim::set_learning_rate(*state.optimizer, group, base_[group] * factor);
}

void SchedulePlan::check_labels(const std::vector<std::string>& labels) const {
  for (const optim::Scheduler& scheduler : schedulers_) {
    const optim::MetricSchedule* schedule = scheduler.metric_schedule();
    if (!schedule || std::ranges::count(labels, schedule->dataloader_label()) > 0) continue;
    std::string known;
    for (const std::string& label : labels) known += (known.empty() ? "" : ", ") + label;
    throw ConfigError("schedulers: one follows the metrics of \"", schedule->dataloader_label(),
                      "\"; this fit has: ", known);
  }
}

void SchedulePlan::observe(State& state, const std::string& label) const {
  bool observed = false;
  for (const optim::Scheduler& scheduler : schedulers_) {
    optim::MetricSchedule* schedule = scheduler.metric_schedule();
    if (!schedule || schedule->dataloader_label() != label) continue;
    schedule->observe(state);
    observed = true;
  }
  if (observed) apply(state);
}

// Those with a memory are told apart by their place in the list.
void SchedulePlan::visit_state(StateVisitor& visit) const {
  if (visit.is_loading() && !visit.has("schedulers")) return;
  StateVisitor all = visit.scope("schedulers");
  for (std::size_t i = 0; i < schedulers_.size(); ++i) {
    optim::MetricSchedule* schedule = schedulers_[i].metric_schedule();
    if (!schedule || (visit.is_loading() && !all.has(std::to_string(i)))) continue;
    StateVisitor one = all.scope(std::to_string(i));
    schedule->visit_state(one);
  }
}

}  // namespace composer
