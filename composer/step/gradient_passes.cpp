#include "composer/step/gradient_passes.h"

#include <exception>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/optim/named_optimizer.h"
#include "composer/step/batch_undo.h"
#include "composer/util/out_of_memory.h"

namespace composer {

void GradientPasses::use_rule(const Engine& engine) {
  rule_ = nullptr;
  for (const auto& algorithm : engine.algorithms()) {
    StepRule* rule = algorithm.object->step_rule();
    if (!rule) continue;
    if (rule_)
      throw ConfigError("algorithms: ", rule_name_, " and ", algorithm.name, " both make the gradients of a step");
    rule_ = rule;
    rule_name_ = algorithm.name;
  }
  const auto* ours = dynamic_cast<const optim::NamedOptimizer*>(&*state_.optimizer);
  if (rule_ && ours && ours->steps_in_backward())
    throw ConfigError("optimizer: step_in_backward does not go with ", rule_name_,
                      ", which needs all gradients of a step");
}

at::Tensor GradientPasses::make(const TrainBatch& train_batch) try {
  have_shown_ = false;
  return rule_ ? make_by_rule(train_batch) : train_batch(/*counts=*/true);
} catch (const c10::Error& error) {
  if (std::string_view(error.what_without_backtrace()).find("nference tensor") == std::string_view::npos) throw;
  throw_nested<ConfigError>("inference_mode: the model trains on a tensor that it made while it evaluated or ",
                            "predicted, which libtorch's inference mode forbids; set inference_mode = false, or make ",
                            "the tensor in the model's constructor");
}

at::Tensor GradientPasses::make_by_rule(const TrainBatch& train_batch) {
  at::Tensor loss;
  bool passing = false;  // within a pass, an error is the model's, not the rule's
  const auto pass = [&](bool counts) {
    if (loss.defined()) throw ConfigError(rule_name_, "::make_gradients: a pass after the one that counts");
    passing = true;
    if (counts)
      loss = train_batch(/*counts=*/true);
    else
      run_uncounted_pass(train_batch);
    passing = false;
    have_shown_ = true;
  };
  try {
    rule_->make_gradients(state_, pass);
  } catch (...) {
    if (passing || is_out_of_memory(std::current_exception())) throw;
    throw_nested<RunError>(rule_name_, " failed in make_gradients, epoch ", state_.timestamp.epoch, ", batch ",
                           state_.timestamp.batch);
  }
  if (!loss.defined()) throw ConfigError(rule_name_, "::make_gradients: no pass that counts");
  return loss;
}

// Leaves the gradients of the batch, and the losses and metrics of these weights. Everything else is restored.
void GradientPasses::run_uncounted_pass(const TrainBatch& train_batch) {
  BatchUndo undo(state_);
  train_batch(/*counts=*/false);
  state_.outputs.clear();
  state_.loss.clear();
  undo.restore();
}

}  // namespace composer
