#include "composer/step/training_metrics.h"

#include <algorithm>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/model_access.h"
#include "composer/util/autocast.h"

namespace composer {

void TrainingMetrics::update() {
  if (set_.empty()) return;
  const at::NoGradGuard no_grad;
  const AutocastScope autocast(state_.precision, state_.device);
  set_.update(*state_.model, microbatch_, outputs());
}

// Computes in evaluation mode, so that a model whose eval_forward runs a forward pass does not count statistics twice.
// Once eval_forward has returned the outputs of training, modes are no longer changed.
Outputs TrainingMetrics::outputs() {
  Model& model = *state_.model;
  std::optional<EvaluationMode> evaluating;
  if (!reuses_outputs_) evaluating.emplace(as_module(model));
  Outputs outputs = eval_forward_of(model, microbatch_, &state_.outputs);
  reuses_outputs_ = std::ranges::equal(outputs, state_.outputs, [](const auto& given, const auto& trained) {
    return given.second.is_same(trained.second);
  });
  return outputs;
}

}  // namespace composer
