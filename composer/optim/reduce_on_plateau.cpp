#include "composer/optim/reduce_on_plateau.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "composer/core/direction.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/optim/curves.h"

namespace composer::optim {
namespace {

constexpr const char* kWho = "reduce_on_plateau";

void check_not_negative(const char* option, double value) {
  if (!(value >= 0 && std::isfinite(value))) throw ConfigError(kWho, ": ", option, " must be >= 0, got ", value);
}

void check_wait(const char* option, Time time) {
  if (time.unit() == TimeUnit::SECOND || time.unit() == TimeUnit::DURATION)
    throw ConfigError(kWho, ": ", option, " must be in ep, ba, sp, tok or iter, got ", time);
  if (time.count() < 0) throw ConfigError(kWho, ": ", option, " must be >= 0, got ", time);
}

}  // namespace

ReduceOnPlateau::ReduceOnPlateau(ReduceOnPlateauOptions options) : options_(std::move(options)) {
  const ReduceOnPlateauOptions& o = options_;
  if (o.monitor.empty() || o.dataloader_label.empty())
    throw ConfigError(kWho, ": monitor and dataloader_label are required, got \"", o.monitor, "\" and \"",
                      o.dataloader_label, '"');
  if (!(o.factor > 0 && o.factor < 1)) throw ConfigError(kWho, ": factor must be in (0, 1), got ", o.factor);
  check_wait("patience", o.patience);
  check_wait("cooldown", o.cooldown);
  if (o.cooldown.count() != 0 && o.cooldown.unit() != o.patience.unit())
    throw ConfigError(kWho, ": cooldown must be in the unit of patience, ", o.patience, ", got ", o.cooldown);
  check_not_negative("threshold", o.threshold);
  check_not_negative("eps", o.eps);
  if (!(o.min_alpha >= 0 && o.min_alpha <= 1))
    throw ConfigError(kWho, ": min_alpha must be in [0, 1], got ", o.min_alpha);
}

void ReduceOnPlateau::observe(const State& state) {
  double value = 0;
  try {
    value = state.metrics.at(options_.dataloader_label, options_.monitor);
  } catch (const ConfigError& error) {
    throw ConfigError(kWho, ": ", error.what());
  }
  if (!better_) better_ = direction(kWho, options_.better, state, options_.dataloader_label, options_.monitor);
  observe(value, state.timestamp.get(options_.patience.unit()).count());
}

void ReduceOnPlateau::observe(double value, std::int64_t now) {
  // A timestamp that was set back begins a new wait; else this is no change.
  std::int64_t since = std::min(memory_.bad_since.value_or(now - 1), now + options_.cooldown.count());
  if (is_best(value)) {
    memory_.best = value;
    since = std::max(since, now);  // later if it cools down
  }
  if (now - since > options_.patience.count()) {
    reduce();
    since = now + options_.cooldown.count();
  }
  memory_.bad_since = since;
}

bool ReduceOnPlateau::is_best(double value) const {
  const bool higher = better_.value_or(options_.better.value_or(Better::LOWER)) == Better::HIGHER;
  if (!memory_.best) return higher ? value > -INFINITY : value < INFINITY;
  const double best = *memory_.best, gain = higher ? options_.threshold : -options_.threshold;
  const double bar = options_.threshold_mode == ThresholdMode::REL ? best * (1 + gain) : best + gain;
  return higher ? value > bar : value < bar;
}

void ReduceOnPlateau::reduce() {
  const double lower = std::max(memory_.alpha * options_.factor, options_.min_alpha);
  if (memory_.alpha - lower > options_.eps) memory_.alpha = lower;
}

double ReduceOnPlateau::multiplier(const ScheduleContext&) const { return memory_.alpha; }

void ReduceOnPlateau::set_memory(PlateauMemory memory) {
  if (!(memory.alpha >= 0 && memory.alpha <= 1))
    throw ConfigError(kWho, ": alpha must be in [0, 1], got ", memory.alpha);
  memory_ = memory;
  keeps_memory_ = true;
}

void ReduceOnPlateau::begin_run() {
  better_.reset();
  if (!std::exchange(keeps_memory_, false)) memory_ = {};
}

void ReduceOnPlateau::check_fit(const FitOutline& fit, const State& state) const {
  fit.check_metric(kWho, options_.dataloader_label, options_.monitor, state);
  fit.check_better(kWho, options_.better, options_.dataloader_label, options_.monitor);
  fit.check_epochs("reduce_on_plateau: patience", options_.patience, ReduceOnPlateauOptions().patience,
                   "so the rate is never reduced", state);
}

void ReduceOnPlateau::visit_state(StateVisitor& visit) {
  visit("alpha", memory_.alpha);
  visit("best", memory_.best);
  visit("bad_since", memory_.bad_since);
  visit("better", better_);
  if (!visit.is_loading() || !better_ || !options_.better || *better_ == *options_.better) return;
  better_ = options_.better;
  memory_.best.reset();  // it is none in the other direction
}

Scheduler reduce_on_plateau(ReduceOnPlateauOptions options) {
  std::string text = detail::with_options("reduce_on_plateau", "monitor", options.monitor, "factor", options.factor,
                                          "patience", options.patience, "min_alpha", options.min_alpha);
  return detail::named(std::move(text), std::make_shared<ReduceOnPlateau>(std::move(options)));
}

}  // namespace composer::optim
