#include "composer/step/microbatch_repeat.h"

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/step/batch_losses.h"
#include "composer/step/batch_undo.h"

namespace composer {

namespace {

// Autograd counts the writes to a tensor, and rejects a backward pass if a saved tensor was written since. Writes
// during the life of this object do not count, provided that the tensors have their old values again at its end.
class RestoreVersions {
 public:
  explicit RestoreVersions(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.is_inference()) continue;
      counters_.emplace_back(tensor, torch::autograd::impl::version_counter(tensor));
      torch::autograd::impl::set_version_counter(tensor, c10::VariableVersion(tensor._version()));
    }
  }
  ~RestoreVersions() {
    for (const auto& [tensor, counter] : counters_) torch::autograd::impl::set_version_counter(tensor, counter);
  }
  RestoreVersions(const RestoreVersions&) = delete;
  RestoreVersions& operator=(const RestoreVersions&) = delete;

 private:
  std::vector<std::pair<at::Tensor, c10::VariableVersion>> counters_;
};

}  // namespace

void MicrobatchRepeat::run(bool backward, const LossWeight& share) {
  if (!random_.is_set()) throw Error("state.run->repeat_microbatch: keep_random() was not called at BEFORE_FORWARD");
  const RestoreVersions versions(buffers(as_module(*state_.model)));
  BatchUndo undo(state_);
  const Outputs outputs = state_.outputs;
  const Losses losses = state_.loss;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients;
  for (at::Tensor& parameter : parameters(as_module(*state_.model)))
    gradients.emplace_back(parameter, std::exchange(parameter.mutable_grad(), {}));
  const auto take_back = [&] {
    for (auto& [parameter, gradient] : gradients) parameter.mutable_grad() = gradient;
    state_.outputs = outputs;
    state_.loss = losses;
    undo.restore();
  };
  try {
    const at::AutoGradMode enable_grad(true);
    random_.restore();
    computation_.forward(share);
    computation_.loss();
    if (backward) computation_.backward(total_of(state_.loss), share);
  } catch (...) {
    take_back();
    throw;
  }
  take_back();
}

}  // namespace composer
