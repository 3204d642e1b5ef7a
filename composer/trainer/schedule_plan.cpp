#include "composer/trainer/schedule_plan.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>

#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/state_dict.h"
#include "composer/optim/optimizer.h"
#include "composer/util/exact_text.h"

namespace composer {
namespace {

Timestamp start_of_epoch(Timestamp now) {
  now.batch -= std::exchange(now.batch_in_epoch, 0);
  now.sample -= std::exchange(now.sample_in_epoch, 0);
  now.token -= std::exchange(now.token_in_epoch, 0);
  return now;
}

// Whether the schedule depends on tokens: a schedule is a function of the time, so its value then changes after some
// tokens. Schedules that depend on metrics are not called.
bool follows_tokens(const optim::Scheduler& scheduler, const optim::ScheduleContext& now) {
  if (scheduler.metric_schedule()) return false;
  const double without = scheduler(now);
  optim::ScheduleContext later = now;
  for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{1'000}, std::int64_t{1'000'000'000}}) {
    later.timestamp.token = now.timestamp.token + tokens;
    if (scheduler(later) != without) return true;
  }
  return false;
}

}  // namespace

SchedulePlan::SchedulePlan(std::vector<optim::Scheduler> schedulers, double scale_schedule_ratio, bool every_batch)
    : schedulers_(std::move(schedulers)), ratio_(scale_schedule_ratio), every_batch_(every_batch) {
  for (std::size_t i = 0; i < schedulers_.size(); ++i)
    if (!schedulers_[i]) throw ConfigError("schedulers: the one at index ", i, " is null");
}

// Unset if the length of the run is unknown.
std::optional<optim::ScheduleContext> SchedulePlan::context(const Timestamp& at, OptionalTime until,
                                                            std::optional<std::int64_t> dataloader_len) const {
  if (!until && !endless_) return std::nullopt;
  return optim::ScheduleContext{every_batch_ ? at : start_of_epoch(at), until.value_or(optim::kEndless), dataloader_len,
                                ratio_};
}

std::optional<double> SchedulePlan::factor(const optim::ScheduleContext& now) const {
  double product = 1;
  for (std::size_t i = 0; i < schedulers_.size(); ++i) {
    const double one = schedulers_[i](now);
    if (!std::isfinite(one) || one < 0) {
      if (now.timestamp.reached(now.max_duration)) return std::nullopt;
      throw ConfigError("schedulers: the one at index ", i, " gave ", one, " at epoch ", now.timestamp.epoch,
                        ", batch ", now.timestamp.batch, "; a learning rate is multiplied by it, so it must be finite ",
                        "and >= 0");
    }
    product *= one;
  }
  return product;
}

void SchedulePlan::apply(State& state) const {
  if (schedulers_.empty() || !state.optimizer) return;
  const auto now = context(state.timestamp, state.max_duration, state.dataloader_len);
  if (!now) return;  // unknown until a fit() begins
  const auto product = factor(*now);
  if (!product) return;
  for (std::size_t group = 0; group < base_.size(); ++group)
    optim::set_learning_rate(*state.optimizer, group, base_[group] * *product);
}

std::vector<double> SchedulePlan::rates(const State& state) const {
  std::vector<double> rates = base_;
  if (schedulers_.empty()) return rates;
  const auto now = context(state.timestamp, state.max_duration, state.dataloader_len);
  if (!now) return rates;
  if (const auto product = factor(*now))
    for (double& rate : rates) rate *= *product;
  return rates;
}

void SchedulePlan::check(const Timestamp& from, OptionalTime until, std::optional<std::int64_t> dataloader_len) const {
  if (schedulers_.empty()) return;
  const auto now = context(from, until, dataloader_len);
  if (now && factor(*now) == 0. && !every_batch_ && from.batch == 0)
    warn(
        "schedulers: the whole first epoch trains with a learning rate of 0, because step_schedulers_every_batch is "
        "false and the schedule, a warm-up for example, begins at 0");
}

std::string SchedulePlan::outline(const Timestamp& from, OptionalTime until,
                                  std::optional<std::int64_t> dataloader_len) const {
  if (schedulers_.empty()) return "none";
  std::string text;
  for (const std::int64_t batches : {0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000}) {
    Timestamp at = from;
    at.batch += batches;
    if (dataloader_len && *dataloader_len > 0) {
      at.batch_in_epoch += batches;
      at.epoch += at.batch_in_epoch / *dataloader_len;
      at.batch_in_epoch %= *dataloader_len;
    }
    const auto now = context(at, until, dataloader_len);
    if (!now) return "none";
    const auto product = [&]() -> std::string {
      try {
        const auto given = factor(*now);
        return given ? util::exact_text(*given) : "none";
      } catch (const std::exception&) {  // for a time that this run may never reach
        return "an error";
      }
    }();
    text += (text.empty() ? "" : ", ") + product;
    if (now->timestamp.reached(now->max_duration)) break;
  }
  return text;
}

void SchedulePlan::check_without_tokens(const State& state) const {
  const auto now = context(state.timestamp, state.max_duration, state.dataloader_len);
  if (!now) return;
  for (std::size_t i = 0; i < schedulers_.size(); ++i)
    if (follows_tokens(schedulers_[i], *now))
      throw ConfigError("schedulers: the one at index ", i, " follows tokens, and the batches of the train loader ",
                        "count none; set DataSpec::get_num_tokens_in_batch, or count in another unit");
}

void SchedulePlan::check_fit(const FitOutline& fit, const State& state) const {
  for (const optim::Scheduler& scheduler : schedulers_) {
    const optim::MetricSchedule* schedule = scheduler.metric_schedule();
    if (!schedule) continue;
    const std::string& label = schedule->dataloader_label();
    if (!fit.find(label))
      throw ConfigError("schedulers: one follows the metrics of \"", label, "\"; this fit has: ", fit.labels());
    if (!fit.epochs_end && fit.trains_under(label))
      throw ConfigError("schedulers: one follows the metrics of \"", label,
                        "\", which are judged at the end of epochs, ",
                        "and no epoch ends in a loop of step(batch); follow those of an evaluator");
    schedule->check_fit(fit, state);
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

void SchedulePlan::withdraw(optim::Optimizer& optimizer) const {
  if (schedulers_.empty()) return;
  for (std::size_t group = 0; group < base_.size(); ++group) optim::set_learning_rate(optimizer, group, base_[group]);
}

void SchedulePlan::begin_run() const {
  for (const optim::Scheduler& scheduler : schedulers_)
    if (optim::MetricSchedule* schedule = scheduler.metric_schedule()) schedule->begin_run();
}

// Stateful schedules are identified by their index in the list.
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
