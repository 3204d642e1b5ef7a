#include "composer/algorithms/swa.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numbers>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/optim/any_optimizer.h"

namespace composer::algorithms {
namespace {

std::vector<Option<SWAOptions>> swa_options() {
  using O = SWAOptions;
  const auto bound = [](auto field) {
    return std::move(field)
        .must("be a share of the run (dur) or in epochs (ep)",
              [](Time time) { return time.unit() == TimeUnit::DURATION || time.unit() == TimeUnit::EPOCH; })
        .must("be >= 0, and a share at most 1dur",
              [](Time time) { return time >= 0 && (time.unit() != TimeUnit::DURATION || time <= 1); });
  };
  const auto is_interval = [](Time time) {
    return (time.unit() == TimeUnit::BATCH || time.unit() == TimeUnit::EPOCH) && time > 0;
  };
  return all_options(bound(option("swa_start", &O::swa_start)).refuses({"-0.1dur", "1ep", "5ba", "0.98dur"}),
                     bound(option("swa_end", &O::swa_end)).refuses({"1.5dur", "4ep", "0.5dur"}),
                     option("update_interval", &O::update_interval)
                         .must("be > 0, in batches (ba) or epochs (ep)", is_interval)
                         .refuses({"0ba", "10sp"}),
                     option("schedule_swa_lr", &O::schedule_swa_lr),
                     option("anneal_strategy", &O::anneal_strategy,
                            {{"linear", AnnealStrategy::LINEAR}, {"cos", AnnealStrategy::COS}}),
                     option("anneal_steps", &O::anneal_steps).at_least(1),
                     option("swa_lr", &O::swa_lr)
                         .at_least(0)
                         .finite()
                         .worded("be > 0, or 0 for the rates at swa_start")
                         .refuses({"0.1"}));
}

void check_swa(const SWAOptions& options) {
  check(options, swa_options(), "SWA: ", "");
  if (options.swa_start.unit() != options.swa_end.unit())
    throw ConfigError("SWA: swa_start and swa_end must have the same unit, got ", options.swa_start, " and ",
                      options.swa_end);
  if (!(options.swa_end > options.swa_start))
    throw ConfigError("SWA: swa_end must be after swa_start, ", options.swa_start, ", got ", options.swa_end);
  if (options.swa_lr > 0 && !options.schedule_swa_lr)
    throw ConfigError("SWA: swa_lr is ", options.swa_lr, ", and has no effect unless schedule_swa_lr is true");
}

bool is_reached(Time time, const State& state) {
  if (time.unit() != TimeUnit::DURATION) return state.timestamp.reached(time);
  return state.max_duration && state.elapsed_duration() >= time.as_double();
}

std::optional<std::string> text_of(const OptionalTime& time) {
  return time ? std::optional(to_string(*time)) : std::nullopt;
}

// Copies buffers: running statistics and counts are those of the last update.
void copy_buffers(const torch::nn::Module& model, WeightsByName& averages) {
  const at::NoGradGuard no_grad;
  const NamedTensorList list = named_buffers(model);
  const std::map<std::string, at::Tensor> buffers(list.begin(), list.end());
  for (auto& [name, average] : averages)
    if (const auto found = buffers.find(name); found != buffers.end())
      average.copy_(found->second, /*non_blocking=*/true);
}

}  // namespace

double swa_learning_rate(double from, std::int64_t updates, const SWAOptions& options) {
  const double to = options.swa_lr > 0 ? options.swa_lr : from;
  const double done = std::min(static_cast<double>(updates) / static_cast<double>(options.anneal_steps), 1.0);
  const double share =
      options.anneal_strategy == AnnealStrategy::LINEAR ? done : (1 - std::cos(std::numbers::pi * done)) / 2;
  return to * share + from * (1 - share);
}

SWA::SWA(SWAOptions options) : options_(options) { check_swa(options_); }

Event SWA::update_event() const {
  return options_.update_interval.unit() == TimeUnit::BATCH ? Event::BATCH_END : Event::EPOCH_END;
}

EventSet SWA::events() const {
  return {Event::INIT, Event::FIT_START, Event::BATCH_START, Event::BATCH_END, Event::EPOCH_END, Event::FIT_END};
}

bool SWA::match(Event event, const State& state) const {
  if (event == Event::INIT || event == Event::FIT_START || event == Event::FIT_END) return true;
  // Checks swa_start again: a fit with another max_duration may not have reached it.
  if (event == Event::BATCH_START)
    return options_.schedule_swa_lr && updates_ > 0 && is_reached(options_.swa_start, state);
  if (completed_) return false;
  if (event == update_event()) return is_reached(options_.swa_start, state);
  // A run in epochs ends when its last epoch is counted, which comes after its last batch.
  return updates_ > 0 && is_reached(options_.swa_end, state);
}

void SWA::apply(Event event, State& state, Logger&) {
  if (event == Event::INIT) return restart();
  if (event == Event::FIT_START) return begin_fit(state);
  if (event == Event::FIT_END) {
    if (completed_ && !state.max_duration) {  // without a max_duration, only FIT_END separates this fit from the next
      restore_learning_rates(state);
      rates_.clear();
    }
    return warn_of_lost_averages(state);
  }
  if (event == Event::BATCH_START) return set_learning_rates(state);
  if (event == update_event()) update(state);
  if (is_reached(options_.swa_end, state)) finish(state);
}

void SWA::update(State& state) {
  const std::int64_t now = state.timestamp.get(options_.update_interval.unit()).count();
  if (updates_ == 0) {
    started_at_ = now;
    rates_ = optim::learning_rates(*state.optimizer);
    averages_.begin(as_module(*state.model));
  }
  if ((now - started_at_) % options_.update_interval.count() == 0) {
    ++updates_;
    averages_.move(as_module(*state.model), 1 / static_cast<double>(updates_));
    copy_buffers(as_module(*state.model), averages_.by_name());
  }
}

void SWA::restart() {
  averages_ = {};
  updates_ = started_at_ = 0;
  completed_ = false;
  completed_for_.reset();
  rates_.clear();
  set_rates_.clear();
}

void SWA::begin_fit(State& state) {
  const bool from_zero = state.timestamp.batch == 0,
             is_later = completed_ && completed_for_ != text_of(state.max_duration);
  if (from_zero || is_later || !is_reached(options_.swa_start, state)) restore_learning_rates(state);
  if (is_later) rates_.clear();
  if (from_zero) restart();
  if (state.max_duration && state.max_duration->unit() == options_.swa_end.unit() && !completed_ &&
      *state.max_duration < options_.swa_end)
    warn(join("SWA: swa_end is ", options_.swa_end, ", and training ends before, at ", *state.max_duration,
              "; the model will not get the averages"));
  averages_.find(as_module(*state.model));
}

void SWA::warn_of_lost_averages(const State& state) const {
  if (completed_ || !state.max_duration || state.elapsed_duration() < 1) return;
  warn(join("SWA: the run is over, and the model did not get the averages: ",
            updates_ == 0 ? join("update_interval is ", options_.update_interval, ", and none ended after swa_start, ",
                                 options_.swa_start)
                          : join("swa_end is ", options_.swa_end)));
}

// Sets the rates after the trainer's schedules, if there are any, have set those of this batch.
void SWA::set_learning_rates(State& state) {
  const std::size_t groups = std::min(rates_.size(), state.optimizer->param_groups().size());
  set_rates_.resize(groups);
  for (std::size_t group = 0; group < groups; ++group) {
    set_rates_[group] = swa_learning_rate(rates_[group], updates_, options_);
    optim::set_learning_rate(*state.optimizer, group, set_rates_[group]);
  }
}

// Restores only rates that this algorithm has set: a schedule or the program may have changed others since.
void SWA::restore_learning_rates(State& state) {
  const std::vector<double> now = optim::learning_rates(*state.optimizer);
  for (std::size_t group = 0; group < std::min({set_rates_.size(), rates_.size(), now.size()}); ++group)
    if (now[group] == set_rates_[group]) optim::set_learning_rate(*state.optimizer, group, rates_[group]);
  set_rates_.clear();
}

void SWA::finish(State& state) {
  averages_.put_into(as_module(*state.model));
  averages_ = {};
  completed_ = true;
  completed_for_ = text_of(state.max_duration);
  if (state.max_duration && state.elapsed_duration() >= 1 && !buffers(as_module(*state.model)).empty())
    warn(join("SWA: training ends where averaging does, at ", options_.swa_end,
              ", so running statistics of batch norms are not those of the averaged weights; set an earlier swa_end"));
}

void SWA::visit_state(StateVisitor& visit) {
  visit("updates", updates_);
  visit("started_at", started_at_);
  visit("completed", completed_);
  visit("completed_for", completed_for_);
  visit("learning_rates", rates_);
  if (!visit.is_loading() || visit.has("set_learning_rates")) visit("set_learning_rates", set_rates_);
  if (visit.is_loading() && !visit.has("averages"))
    averages_ = {};
  else
    visit("averages", averages_);
}

StateDict SWA::local_hparams() const { return describe(options_, swa_options()); }

namespace entries {

Entry<Algorithms> swa() { return entry<SWA>("swa", "Averages the weights of the last epochs", swa_options()); }

}  // namespace entries
}  // namespace composer::algorithms
