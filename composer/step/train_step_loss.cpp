// The loss of a microbatch: what it counts in that of the batch, and what is looked for in it.

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/step/train_step.h"
#include "composer/util/autocast.h"

namespace composer {

void TrainStep::loss() {
  if (!graph_ || !graph_->take_loss()) {
    const std::uint64_t runs = current_.weight.runs();
    run_loss();
    if (current_.weight.depends_on_loss()) weigh_loss(/*told=*/current_.weight.runs() != runs);
    if (current_.weight.depends_on_kind()) share_ = part_weights_.of_loss(state_.batch, current_.weight) / weight_;
    stop_gradients_of_nothing();
  }
  lose_loss();
}

// `told`: by the loss that the model has told the weight of.
void TrainStep::weigh_loss(bool told) {
  part_weights_.check_loss(told, current_.weight, weight_, whole_, microbatches_.size() == 1 && !ranks());
  if (told) return;
  current_.weight = current_.counted;
  share_ = current_.weight / LossWeight(counted_);
}

// On a device nobody looks whether a part has weight, and the gradient of a mean over nothing is NaN.
void TrainStep::stop_gradients_of_nothing() {
  if (!share_.is_on_device()) return;
  for (const auto& [name, output] : state_.outputs)
    if (output.defined() && output.requires_grad() && !output.is_leaf())
      output.register_hook([share = share_](const at::Tensor& gradient) { return share.value_or_zero(gradient); });
}

// Of a part without weight: a mean over nothing may be 0/0.
void TrainStep::lose_loss() {
  if (counts() && !share_.is_on_device()) return;
  for (auto& [name, loss] : state_.loss) loss = share_.value_or_zero(loss);
}

void TrainStep::run_loss() {
  const AutocastScope autocast(state_.precision, state_.device);
  state_.loss = loss_of(*state_.model, state_.outputs, state_.batch);
  if (state_.loss.empty()) throw ConfigError("Model::loss gave no loss");
  for (const auto& [name, loss] : state_.loss)
    if (!loss.defined()) throw ConfigError("Model::loss: ", name, " is an undefined tensor");
}

}  // namespace composer
