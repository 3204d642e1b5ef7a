#pragma once
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/state.h"

namespace composer {

class Engine;
class StepRule;

// The passes over a batch that make its gradients: one, or those of the algorithm that has a StepRule.
class GradientPasses {
 public:
  explicit GradientPasses(State& state) : state_(state) {}

  // When a fit begins. Throws ConfigError for two rules, and for one with an optimizer that steps in backward.
  void use_rule(const Engine& engine);

  // Makes the gradients of the batch, and returns its loss. What algorithms do to gradients, and what others see,
  // belongs to a pass that counts.
  using TrainBatch = std::function<at::Tensor(bool counts)>;
  // Leaves the gradients of the one pass that counts, or what the rule makes of all; returns the loss of that one.
  at::Tensor make(const TrainBatch& train_batch);
  // A pass has shown the losses and metrics of the batch, so that the others, at other weights, show none.
  bool have_shown() const { return have_shown_; }

 private:
  at::Tensor make_by_rule(const TrainBatch& train_batch);
  void rehearse(const TrainBatch& train_batch);

  State& state_;
  StepRule* rule_ = nullptr;
  std::string rule_name_;
  bool have_shown_ = false;
};

}  // namespace composer
