// Passes over a batch that leave no trace, or less than one that trains.
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/step/batch_undo.h"
#include "composer/step/memory.h"
#include "composer/step/train_step.h"

namespace composer {

void TrainStep::keep_random() { random_.set(state_.device); }

namespace {

// Autograd counts the writes to a tensor, and refuses a backward pass for which one was written meanwhile. What is
// written while this exists, and has its old values again when it ends, does not count.
class Uncounted {
 public:
  explicit Uncounted(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.is_inference()) continue;
      counters_.emplace_back(tensor, torch::autograd::impl::version_counter(tensor));
      torch::autograd::impl::set_version_counter(tensor, c10::VariableVersion(tensor._version()));
    }
  }
  ~Uncounted() {
    for (const auto& [tensor, counter] : counters_) torch::autograd::impl::set_version_counter(tensor, counter);
  }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  std::vector<std::pair<at::Tensor, c10::VariableVersion>> counters_;
};

}  // namespace

// With gradients of its own, so that those of the batch stay what they are.
void TrainStep::repeat(bool backward) {
  if (!random_.is_set()) throw Error("state.run->repeat_microbatch: keep_random() was not called at BEFORE_FORWARD");
  const Uncounted uncounted(buffers(as_module(*state_.model)));
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
    run_forward();
    run_loss();
    if (backward) differentiate(total_of(state_.loss));
  } catch (...) {
    take_back();
    throw;
  }
  take_back();
}

// Leaves the gradients of the batch, and what it shows at these weights.
void TrainStep::rehearse(const TrainBatch& train_batch) {
  BatchUndo undo(state_);
  train_batch(/*counts=*/false);
  state_.outputs.clear();
  state_.loss.clear();
  undo.restore();
}

// Leaves no trace: random numbers, buffers and gradients are as they were.
void TrainStep::choose_microbatch_size(const Feed& feed) {
  BatchUndo undo(state_);
  const Losses batch_loss = state_.batch_loss;
  take_back(undo);
  auto_->choose(samples_, [&](std::int64_t size) {
    take_back(undo);
    try_microbatches(feed, size);
  });
  take_back(undo);
  state_.batch_loss = batch_loss;
}

// Two, because the second adds its gradients to those of the first.
void TrainStep::try_microbatches(const Feed& feed, std::int64_t size) {
  const at::AutoGradMode enable_grad(true);
  const Apart apart(*this);
  const Batch part = feed.split(whole_, size).front();
  for (const bool first : {true, false}) {
    enter(feed, part, first);
    current_.weight = {};
    share_ = 0.5;
    forward();
    loss();
    backward();
  }
}

// What an attempt to train the batch has left, whether it came to its end or not.
void TrainStep::take_back(BatchUndo& undo) {
  state_.optimizer->zero_grad(/*set_to_none=*/true);
  state_.outputs.clear();
  state_.loss.clear();
  current_.batch.clear();
  state_.batch = whole_;
  undo.restore();
  release_cached_memory(state_.device);
}

}  // namespace composer
