#pragma once
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {

// Gradient checkpointing: calls fn now, keeps no intermediate results, and calls fn again when its gradients are
// needed. This saves memory and costs one more forward. The gradients are bit-identical, including dropout and
// autocast, because both calls see the same random numbers and the same autocast settings. Calls may be nested. What
// Frozen (core/frozen.h) keeps frozen at the first call is frozen at the second; what you freeze by set_requires_grad()
// must be frozen at both.
//
// fn must give the same outputs for the same inputs. Objects that fn captures live as long as the graph of the outputs.
// What fn changes is changed twice: the running statistics of a batch norm inside take two steps per batch. Parameters
// that fn uses get gradients even if no input requires any, so floating-point outputs always require gradients; only
// without gradients (at::NoGradGuard, InferenceMode) is this just fn(inputs). A tensor that other operations computed
// with gradients must be among the inputs: if fn captures it instead, backward ends in libtorch's error "Trying to
// backward through the graph a second time".
//
// An undefined input is passed on to fn. Throws ConfigError for an undefined output. backward throws ConfigError for
// gradients by torch::autograd::grad() instead of backward(), and for gradients of gradients, which are not supported.
using Segment = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;
COMPOSER_EXPORT std::vector<at::Tensor> checkpoint(Segment fn, const std::vector<at::Tensor>& inputs);
COMPOSER_EXPORT at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor& input)> fn, const at::Tensor& input);

// The number of calls of checkpoint() in this process whose gradients have not been computed, and may still be.
COMPOSER_EXPORT int pending_checkpoints();

}  // namespace composer
