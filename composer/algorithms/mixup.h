#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/algorithms/microbatch_count.h"
#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::algorithms {

// Which samples are mixed, and with which weights.
struct MixUpDraw {
  double mixing = 0;       // weight of the other sample, 0 to 0.5
  at::Tensor permutation;  // int64 [N]: the index of the other sample of each sample
};

struct MixUpOptions {
  double alpha = 0.2;  // parameter of the beta distribution of the weight, >= 0; larger mixes more, 0 does not mix
  bool interpolate_loss = false;      // mix the losses of both targets instead of the targets, for a loss that accepts
                                      // classes only; evaluates the loss twice
  std::string input_key = "input";    // name of the inputs in the batch
  std::string target_key = "target";  // name of the targets in the batch
  std::function<MixUpDraw(std::int64_t samples)> draw = nullptr;  // returns weight and permutation of a microbatch;
                                                                  // unset: random
};

// Returns min(z, 1 - z) for z = sample_beta(alpha, alpha), so each sample keeps a weight of at least 0.5; 0 if alpha is
// 0.
COMPOSER_EXPORT double gen_mixing_coef(double alpha, const std::function<double(double a, double b)>& sample_beta);

struct MixedBatch {
  at::Tensor input;            // (1 - mixing) * input + mixing * input[permutation]
  at::Tensor permuted_target;  // target[permutation]
};
COMPOSER_EXPORT MixedBatch mixup_batch(const at::Tensor& input, const at::Tensor& target, const MixUpDraw& draw);

// Trains on mixtures of two samples of a microbatch and of their targets (arXiv:1710.09412). Uses one weight and one
// permutation per microbatch. They depend only on the trainer's seed and the numbers of the batch and the microbatch,
// so a resumed run uses the same ones. Requires a model with one output, and a loss that accepts probabilities unless
// interpolate_loss is set. Throws ConfigError at the first batch if the input is token ids, or if classes are not in
// dimension 1 of the output.
class COMPOSER_EXPORT MixUp final : public Algorithm {
 public:
  explicit MixUp(MixUpOptions options = {});  // throws ConfigError
  explicit MixUp(EmptyOptions) : MixUp() {}
  StateDict local_hparams() const override;
  EventSet events() const override;
  void apply(Event event, State& state, Logger& logger) override;
  bool mixes_targets() const override { return true; }
  bool interpolates_loss() const override { return options_.interpolate_loss; }

 private:
  MixUpDraw draw(const State& state, std::int64_t samples);

  MixUpOptions options_;
  double mixing_ = 0;
  // Set at BEFORE_FORWARD; the targets are mixed later, after other algorithms have changed them.
  at::Tensor permutation_;
  MicrobatchCount microbatches_;
};

}  // namespace composer::algorithms
