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

std::vector<Option<ReduceOnPlateauOptions>> plateau_options() {
  using O = ReduceOnPlateauOptions;
  const auto wait = [](auto field) {
    return std::move(field)
        .in({TimeUnit::EPOCH, TimeUnit::BATCH, TimeUnit::SAMPLE, TimeUnit::TOKEN, TimeUnit::ITERATION})
        .at_least(0);
  };
  constexpr const char* kShort = "is left out of the text, which is short";
  return all_options(
      option("monitor", &O::monitor), option("dataloader_label", &O::dataloader_label).unlogged(kShort),
      part("better", &O::better, "higher or lower"),
      option("factor", &O::factor).must("be in (0, 1)", [](double factor) { return factor > 0 && factor < 1; }),
      wait(option("patience", &O::patience)), option("threshold", &O::threshold).at_least(0).finite().unlogged(kShort),
      part("threshold_mode", &O::threshold_mode, "rel or abs"), wait(option("cooldown", &O::cooldown)).unlogged(kShort),
      option("min_alpha", &O::min_alpha).from_to(0, 1).worded("be in [0, 1]"),
      option("eps", &O::eps).at_least(0).finite().unlogged(kShort));
}

}  // namespace

ReduceOnPlateau::ReduceOnPlateau(ReduceOnPlateauOptions options)
    : options_(checked(kWho, std::move(options), plateau_options())) {
  const ReduceOnPlateauOptions& o = options_;
  if (o.monitor.empty() || o.dataloader_label.empty())
    throw ConfigError(kWho, ": monitor and dataloader_label are required, got \"", o.monitor, "\" and \"",
                      o.dataloader_label, '"');
  if (o.cooldown.count() != 0 && o.cooldown.unit() != o.patience.unit())
    throw ConfigError(kWho, ": cooldown must be in the unit of patience, ", o.patience, ", got ", o.cooldown);
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
  // If the timestamp was set back, the wait starts again; otherwise this changes nothing.
  std::int64_t since = std::min(memory_.bad_since.value_or(now - 1), now + options_.cooldown.count());
  if (is_best(value)) {
    memory_.best = value;
    since = std::max(since, now);  // a cooldown ends later than now
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
  memory_.best.reset();  // it is not a best value in the other direction
}

Scheduler reduce_on_plateau(ReduceOnPlateauOptions options) {
  std::string text = detail::described(kWho, options, plateau_options());
  return detail::named(std::move(text), std::make_shared<ReduceOnPlateau>(std::move(options)));
}

}  // namespace composer::optim
