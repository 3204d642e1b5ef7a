// The loss of a microbatch: what it counts in that of the batch, and what is looked for in it.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/step/outside_leaves.h"
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

void TrainStep::warn_of_outside_leaves() const {
  const at::Tensor loss = total_loss();
  if (!loss.requires_grad()) return;  // an error of backward(), or a graph has done it
  std::vector<at::Tensor> known = parameters(as_module(*state_.model));
  for (const at::Tensor& buffer : buffers(as_module(*state_.model))) known.push_back(buffer);
  for (const auto& group : state_.optimizer->param_groups())
    known.insert(known.end(), group.params().begin(), group.params().end());
  for (const Batch* batch : {&whole_, static_cast<const Batch*>(&state_.batch)})
    for (const auto& [name, tensor] : *batch) known.push_back(tensor);
  const std::vector<at::Tensor> outside = outside_leaves(loss, known);
  if (outside.empty()) return;
  constexpr std::size_t kNamed = 4;
  std::string shapes;
  for (std::size_t i = 0; i < std::min(outside.size(), kNamed); ++i)
    shapes += join(i == 0 ? "" : ", ", outside[i].sizes());
  if (outside.size() > kNamed) shapes += ", ...";
  warn(
      join("model: its loss depends on ", outside.size(), " trainable tensors that are no parameters of it (", shapes,
           "), so they are neither trained nor saved; call register_module() or register_parameter() for them, or, if ",
           "something else trains them, set_requires_grad(false) for the time of this step"));
}

namespace {

bool is_nan(const at::Tensor& loss) {
  return std::isnan(loss.is_cpu() ? *loss.const_data_ptr<float>() : loss.item<float>());
}

}  // namespace

// Where looking costs nothing. A scaled step skips overflows, and the loss of a trial may become what it likes.
void TrainStep::watch_for_nan() {
  const at::Tensor* total = state_.batch_loss.find("total");
  if (scaling_.is_on() || !state_.run || !total || !total->is_cpu() || total->scalar_type() != at::kFloat) return;
  if (!is_nan(*total)) return nan_since_.reset();
  if (nan_since_) return;
  nan_since_ = state_.timestamp.batch;
  if (std::exchange(warned_of_nan_, true)) return;
  warn(join("the training loss of batch ", state_.timestamp.batch, " is NaN; the callback NaNMonitor ends a run then"));
}

std::optional<std::int64_t> TrainStep::nan_since() const {
  const at::Tensor* total = state_.batch_loss.find("total");
  if (scaling_.is_on() || !total || !total->is_cuda() || total->scalar_type() != at::kFloat || !is_nan(*total))
    return nan_since_;
  return state_.timestamp.batch - 1;
}

}  // namespace composer
