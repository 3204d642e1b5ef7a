#pragma once
#include "composer/algorithms/weight_averages.h"
#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"
#include "composer/core/weights_use.h"

namespace torch::nn {
class Module;
}

namespace composer::algorithms {

// Copies the trainable parameters and the buffers of a model, with their names in state_dict().
COMPOSER_EXPORT WeightsByName copy_weights(const torch::nn::Module& model);

// Moves each average towards the model's value with the same name: smoothing * average + (1 - smoothing) * value.
// Averages of whole numbers, such as counts of batches, become the model's value. Names that the model does not have
// are skipped.
COMPOSER_EXPORT void compute_ema(const torch::nn::Module& model, WeightsByName& averages, double smoothing);

struct EMAOptions {
  OptionalTime half_life = {};  // time after which a value counts for half, in ba or ep, > 0; unset: 1000ba, unless
                                // smoothing is set
  double smoothing = 0;         // weight of the old average in each update, in (0, 1); 0: computed from half_life
  Time ema_start = "0dur";      // time of the first update, at which the averages begin as the weights; >= 0
  OptionalTime update_interval = {};  // time between updates, in the unit of half_life, >= 1; unset: 1 of that unit
};

// Keeps an exponential moving average of the weights, which evaluation, prediction and exports use. Training continues
// with the trained weights. Throws ConfigError from the constructor.
class COMPOSER_EXPORT EMA final : public Algorithm {
 public:
  explicit EMA(EMAOptions options = {});
  explicit EMA(EmptyOptions) : EMA() {}
  StateDict local_hparams() const override;
  EventSet events() const override;
  bool match(Event event, const State& state) const override;
  void apply(Event event, State& state, Logger& logger) override;
  bool takes_part_in_trials() const override { return false; }
  const WeightsByName* weights_for(WeightsUse use) override;
  void visit_state(StateVisitor& visit) override;

  double smoothing() const { return smoothing_; }  // of each update
  Time update_interval() const { return interval_; }
  const WeightsByName& averages() const { return averages_.by_name(); }  // empty before ema_start

 private:
  EMAOptions options_;
  Time interval_;
  double smoothing_;
  WeightAverages averages_;
};

}  // namespace composer::algorithms
