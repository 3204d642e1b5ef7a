#include "composer/algorithms/mixing.h"

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/util/autocast.h"
#include "composer/util/loss.h"

namespace composer::algorithms {
namespace {

// Float32 for any dtype of the logits: shares of a half-precision target would not add up to 1.
at::Tensor one_hot(const at::Tensor& logits, const at::Tensor& target) {
  return ensure_targets_one_hot(logits, target).to(at::kFloat);
}

}  // namespace

at::Tensor mix(const at::Tensor& a, const at::Tensor& b, double share) { return a.mul(1 - share).add_(b, share); }

void check_can_be_mixed(const char* algorithm, const std::string& key, const at::Tensor& input) {
  if (const at::ScalarType type = input.scalar_type(); type == at::kLong || type == at::kInt)
    throw ConfigError(algorithm, ": \"", key, "\" is ", input.sizes(), " of ", type,
                      "; token ids and other codes cannot be mixed. Use inputs in uint8 or a floating-point type");
}

void mix_targets(const char* algorithm, State& state, const std::string& key, const at::Tensor& other, double share) {
  const at::Tensor& logits = state.outputs.only();
  const at::Tensor& target = state.batch.at(key);
  if (!find_target_kind(logits, target))
    throw ConfigError(algorithm, ": needs outputs [N, C, ...] with the classes in dimension 1; the output is ",
                      logits.sizes(), ", \"", key, "\" is ", target.sizes(),
                      "; set interpolate_loss if the loss accepts such targets");
  state.batch.set(key, mix(one_hot(logits, target), one_hot(logits, other), share));
}

void mix_losses(State& state, const std::string& key, const at::Tensor& other, double share) {
  Batch batch = state.batch;
  batch.set(key, other);
  const AutocastScope autocast(state.precision, state.device);
  const Losses losses = loss_of(*state.model, state.outputs, batch);
  for (auto& [name, loss] : state.loss) loss = mix(loss, losses.at(name), share);
}

}  // namespace composer::algorithms
