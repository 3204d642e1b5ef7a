#include "composer/algorithms/ema.h"

#include <cmath>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"

namespace composer::algorithms {
namespace {

bool is_averaged_from(Time start, const State& state) {
  if (start.unit() != TimeUnit::DURATION) return state.timestamp.reached(start);
  return start <= 0 || (state.max_duration && state.elapsed_duration() >= start.as_double());
}

std::vector<Option<EMAOptions>> ema_options() {
  using O = EMAOptions;
  const auto is_interval = [](Time time) {
    return (time.unit() == TimeUnit::BATCH || time.unit() == TimeUnit::EPOCH) && time > 0;
  };
  constexpr const char* kInterval = "be > 0, in batches (ba) or epochs (ep)";
  return all_options(
      option("half_life", &O::half_life).must(kInterval, is_interval).refuses({"0ba", "100sp", "-1ep"}),
      option("smoothing", &O::smoothing).from_0_below_1().worded("be in (0, 1), or 0 to take it from half_life"),
      option("ema_start", &O::ema_start)
          .must("be >= 0, and a share at most 1dur",
                [](Time start) { return start >= 0 && (start.unit() != TimeUnit::DURATION || start <= 1); })
          .refuses({"-1ba", "1.5dur"}),
      option("update_interval", &O::update_interval).must(kInterval, is_interval).refuses({"0ba", "1ep"}));
}

OptionalTime half_life_of(const EMAOptions& options) {
  if (options.half_life || options.smoothing != 0) return options.half_life;
  return "1000ba";
}

Time interval_of(const EMAOptions& options) {
  const OptionalTime half_life = half_life_of(options);
  if (!half_life) return options.update_interval.value_or(Time("1ba"));
  const Time interval = options.update_interval.value_or(Time(1, half_life->unit()));
  if (interval.unit() != half_life->unit())
    throw ConfigError("EMA: update_interval must be in the unit of half_life, ", *half_life, ", got ", interval);
  return interval;
}

double smoothing_of(const EMAOptions& options, Time interval) {
  if (options.half_life && options.smoothing != 0)
    throw ConfigError("EMA: half_life is ", *options.half_life, " and smoothing is ", options.smoothing,
                      "; give one of the two");
  const OptionalTime half_life = half_life_of(options);
  return half_life ? std::exp(-std::log(2.0) * (interval / *half_life).as_double()) : options.smoothing;
}

// Whether the run ends before averaging matters: then at most the last update happens, and averages only the last
// weights. At the end of the last batch, the last epoch is not counted yet.
bool ends_before(Time start, const OptionalTime& end, TimeUnit updates) {
  if (start.unit() != TimeUnit::DURATION) return end && end->unit() == start.unit() && *end <= start;
  if (start <= 0) return false;
  if (!end || start >= 1) return true;
  const bool counts_later = updates == TimeUnit::BATCH && end->unit() == TimeUnit::EPOCH;
  return counts_later && start.as_double() * end->as_double() > end->as_double() - 1;
}

bool has_ended(const State& state) { return state.max_duration && state.elapsed_duration() >= 1; }

// Warns if updates are too small for the averages, which have the dtype of the weights.
void warn_if_too_coarse(const WeightsByName& averages, double share) {
  for (const auto& [name, average] : averages) {
    if (!at::isReducedFloatingType(average.scalar_type())) continue;
    const double step = average.scalar_type() == at::kHalf ? 0x1p-10 : 0x1p-7;  // distance from 1 to the next number
    if (share >= step) continue;
    return warn(join("EMA: ", name, " is ", average.scalar_type(), ", which has too few digits for an average that an ",
                     "update moves by a share of ", share, ", so it hardly moves. Train weights in float32, with ",
                     "amp_bf16 for example, or set a half_life of a few updates"));
  }
}

}  // namespace

WeightsByName copy_weights(const torch::nn::Module& model) {
  WeightAverages copies;
  copies.begin(model);
  return copies.by_name();
}

void compute_ema(const torch::nn::Module& model, WeightsByName& averages, double smoothing) {
  if (!(smoothing >= 0 && smoothing <= 1))
    throw ConfigError("compute_ema: smoothing must be from 0 to 1, got ", smoothing);
  WeightAverages all;
  all.by_name() = averages;
  all.move(model, 1 - smoothing);
  averages = all.by_name();
}

EMA::EMA(EMAOptions options)
    : options_(checked("EMA", options, ema_options())),
      interval_(interval_of(options_)),
      smoothing_(smoothing_of(options_, interval_)) {}

EventSet EMA::events() const {
  return {Event::INIT, Event::AFTER_LOAD, Event::FIT_START, Event::FIT_END,
          interval_.unit() == TimeUnit::BATCH ? Event::BATCH_END : Event::EPOCH_END};
}

bool EMA::match(Event event, const State& state) const {
  if (event == Event::INIT || event == Event::AFTER_LOAD) return !averages_.empty();
  const auto too_late = [&] { return ends_before(options_.ema_start, state.max_duration, interval_.unit()); };
  if (event == Event::FIT_START) return !averages_.empty() || too_late();
  // If it is too late, FIT_START has warned.
  if (event == Event::FIT_END) return averages_.empty() && has_ended(state) && !too_late();
  if (averages_.empty()) return is_averaged_from(options_.ema_start, state);
  return state.timestamp.get(interval_.unit()).count() % interval_.count() == 0;
}

void EMA::apply(Event event, State& state, Logger&) {
  const torch::nn::Module& model = as_module(*state.model);
  if (event == Event::INIT) {
    averages_ = {};  // they belong to another trainer
  } else if (event == Event::FIT_START && averages_.empty()) {
    const std::string end = state.max_duration ? join("training ends at ", *state.max_duration)
                                               : std::string("there is no max_duration that it is a share of");
    warn(join("EMA: ema_start is ", options_.ema_start, ", and ", end, ", so nothing is averaged; set an earlier one"));
  } else if (event == Event::FIT_END) {
    warn(join("EMA: training has ended, at ", *state.max_duration, ", and no update has come since ema_start, ",
              options_.ema_start, ", so nothing was averaged; set an earlier one"));
  } else if (event == Event::AFTER_LOAD || event == Event::FIT_START) {
    averages_.find(model);
  } else if (averages_.empty()) {
    averages_.begin(model);
    warn_if_too_coarse(averages_.by_name(), 1 - smoothing_);
  } else {
    averages_.move(model, 1 - smoothing_);
  }
}

const WeightsByName* EMA::weights_for(WeightsUse) { return averages_.empty() ? nullptr : &averages_.by_name(); }

void EMA::visit_state(StateVisitor& visit) {
  if (visit.is_loading() && !visit.has("averages"))
    averages_ = {};
  else
    visit("averages", averages_);
}

StateDict EMA::local_hparams() const { return describe(options_, ema_options()); }

namespace entries {

Entry<Algorithms> ema() { return entry<EMA>("ema", "Averages the weights, for evaluation and exports", ema_options()); }

}  // namespace entries
}  // namespace composer::algorithms
