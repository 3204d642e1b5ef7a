#include "composer/algorithms/mixup.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/algorithms/mixing.h"
#include "composer/algorithms/sampling.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/rank_seed.h"
#include "composer/core/state.h"
#include "composer/util/random.h"

namespace composer::algorithms {
namespace {

constexpr std::uint64_t kMixUpStream =
    0x6d69787570;  // sets these random numbers apart from those of other uses of a seed

at::Tensor mixed_input(const at::Tensor& input, const at::Tensor& permutation, double mixing) {
  // A permutation of another size would be broadcast: a single index would be mixed into every sample.
  if (input.dim() < 1 || permutation.dim() != 1 || permutation.size(0) != input.size(0))
    throw ConfigError("mixup_batch: needs a permutation of the samples of the input, ", input.sizes(), ", got ",
                      permutation.sizes());
  return mix(input, input.index_select(0, permutation), mixing);
}

std::vector<Option<MixUpOptions>> mixup_options() {
  using O = MixUpOptions;
  return all_options(option("alpha", &O::alpha).at_least(0).finite(), option("interpolate_loss", &O::interpolate_loss),
                     option("input_key", &O::input_key).not_empty(), option("target_key", &O::target_key).not_empty(),
                     part("draw", &O::draw, "a function"));
}

}  // namespace

double gen_mixing_coef(double alpha, const std::function<double(double, double)>& sample_beta) {
  if (!(alpha >= 0 && std::isfinite(alpha))) throw ConfigError("MixUp: alpha must be >= 0, got ", alpha);
  if (alpha == 0) return 0;
  const double z = sample_beta(alpha, alpha);
  return std::min(z, 1 - z);
}

MixedBatch mixup_batch(const at::Tensor& input, const at::Tensor& target, const MixUpDraw& draw) {
  const at::Tensor other = draw.permutation.to(input.device(), /*non_blocking=*/true);
  return {mixed_input(input, other, draw.mixing), target.index_select(0, other)};
}

MixUp::MixUp(MixUpOptions options) : options_(checked("MixUp", std::move(options), mixup_options())) {}

EventSet MixUp::events() const {
  return {Event::BEFORE_TRAIN_BATCH, Event::BEFORE_FORWARD,
          options_.interpolate_loss ? Event::BEFORE_BACKWARD : Event::BEFORE_LOSS};
}

MixUpDraw MixUp::draw(const State& state, std::int64_t samples) {
  const std::int64_t microbatch = microbatches_.next(state.timestamp.batch);
  if (options_.draw) return options_.draw(samples);
  RandomStream random(hash64(rank_seed(state), kMixUpStream, state.timestamp.batch, microbatch));
  const double mixing = gen_mixing_coef(options_.alpha, [&](double a, double b) { return sample_beta(a, b, random); });
  return {mixing, sample_permutation(samples, random)};
}

void MixUp::apply(Event event, State& state, Logger&) {
  if (event == Event::BEFORE_TRAIN_BATCH) return microbatches_.restart();  // a batch may be trained again
  if (event == Event::BEFORE_FORWARD) {
    const at::Tensor input = state.batch.at(options_.input_key);
    check_can_be_mixed("MixUp", options_.input_key, input);
    const MixUpDraw drawn = draw(state, input.size(0));
    permutation_ = drawn.permutation.to(input.device(), /*non_blocking=*/true);
    mixing_ = drawn.mixing;
    state.batch.set(options_.input_key, mixed_input(input, permutation_, mixing_));
    return;
  }
  const at::Tensor permuted = state.batch.at(options_.target_key).index_select(0, std::exchange(permutation_, {}));
  if (event == Event::BEFORE_LOSS) {
    mix_targets("MixUp", state, options_.target_key, permuted, mixing_);
  } else {
    mix_losses(state, options_.target_key, permuted, mixing_);
  }
}

StateDict MixUp::local_hparams() const { return describe(options_, mixup_options()); }

namespace entries {

Entry<Algorithms> mixup() { return entry<MixUp>("mixup", "Trains on mixtures of two samples", mixup_options()); }

}  // namespace entries
}  // namespace composer::algorithms
