#include "composer/step/trial_undo.h"

#include <algorithm>
#include <exception>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/optim/any_optimizer.h"

namespace composer {
namespace {

void copy_tensors(StateDict& state) {
  for (auto& [name, value] : state.entries()) {
    if (auto* tensor = std::get_if<at::Tensor>(&value); tensor && tensor->defined()) *tensor = tensor->clone();
    if (auto* inner = std::get_if<StateDict>(&value)) copy_tensors(*inner);
  }
}

}  // namespace

TrialUndo::TrialUndo(State& state, const std::vector<Plugin<Algorithm>>& algorithms)
    : state_(state), undo_(state), modes_(as_module(*state.model)), rates_(optim::learning_rates(*state.optimizer)) {
  const at::NoGradGuard no_grad;
  for (const auto& algorithm : algorithms) {
    StateDict& saved = algorithms_.emplace_back(algorithm, StateDict()).second;
    StateVisitor visit = StateVisitor::saving(saved);
    algorithm.object->visit_state(visit);
    copy_tensors(saved);
  }
  for (const auto& [name, parameter] : optim::parameters_of(as_module(*state.model))) keep(parameter);
  for (const auto& group : state.optimizer->param_groups())
    for (const at::Tensor& parameter : group.params())
      if (std::ranges::none_of(weights_, [&](const Weight& kept) { return kept.tensor.is_same(parameter); }))
        keep(parameter);
  // Nothing below can fail, so gradients and state are not lost.
  for (Weight& weight : weights_) std::swap(weight.gradient, weight.tensor.mutable_grad());
  std::swap(memory_, state.optimizer->state());
}

void TrialUndo::keep(const at::Tensor& parameter) {
  weights_.push_back({parameter, parameter.clone(), at::Tensor(), parameter.requires_grad()});
}

TrialUndo::~TrialUndo() {
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, copy, gradient, requires_grad] : weights_) {
    tensor.copy_(copy);
    tensor.mutable_grad() = gradient;
    tensor.set_requires_grad(requires_grad);
  }
  restore_algorithms();
  undo_.restore();
  modes_.restore();
  std::swap(memory_, state_.optimizer->state());
  for (std::size_t group = 0; group < rates_.size(); ++group)
    optim::set_learning_rate(*state_.optimizer, group, rates_[group]);
}

void TrialUndo::restore_algorithms() {
  for (const auto& [algorithm, saved] : algorithms_) {
    try {
      StateVisitor visit = StateVisitor::loading(saved, algorithm.name);
      algorithm.object->visit_state(visit);
    } catch (...) {  // a destructor calls this
      warn(join("find_lr: ", algorithm.name,
                ": its state after the trial could not be undone: ", describe(std::current_exception())));
    }
  }
}

}  // namespace composer
