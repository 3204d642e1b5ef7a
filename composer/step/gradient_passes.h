#pragma once
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/state.h"

namespace composer {

class Engine;
class StepRule;

// The passes over a batch that make its gradients: a single pass, or the passes of an algorithm with a StepRule.
class GradientPasses {
 public:
  explicit GradientPasses(State& state) : state_(state) {}

  // To be called when a fit begins. Throws ConfigError for two rules, and for a rule with an optimizer that steps in
  // backward.
  void use_rule(const Engine& engine);

  // Makes the gradients of the batch and returns its loss. Only if `counts`, algorithms see AFTER_TRAIN_BATCH and
  // callbacks see events.
  using TrainBatch = std::function<at::Tensor(bool counts)>;
  // Leaves the gradients of the only pass, or the gradients that the rule makes. Returns the loss of the pass that
  // counts.
  at::Tensor make(const TrainBatch& train_batch);
  // Whether a pass has already shown the losses and metrics of the batch. Later passes, at other weights, show none.
  bool have_shown() const { return have_shown_; }

 private:
  at::Tensor make_by_rule(const TrainBatch& train_batch);
  void run_uncounted_pass(const TrainBatch& train_batch);

  State& state_;
  StepRule* rule_ = nullptr;
  std::string rule_name_;
  bool have_shown_ = false;
};

}  // namespace composer
