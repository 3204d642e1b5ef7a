#pragma once
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {

// Gradient checkpointing: calls fn now, keeps none of what it computes on the way, and calls it again when its
// gradients are needed. Less memory for one more forward; the gradients are the same to the bit, dropout and autocast
// included, because both calls see the same random numbers and the same autocast. It may be nested.
//
// fn must give the same outputs for the same inputs. What it captures lives as long as the outputs' graph, and what it
// changes is changed twice: the running statistics of a batch norm inside take two steps a batch. Parameters that fn
// uses get their gradients whether or not an input has any, so floating-point outputs require gradients always; only
// without gradients (at::NoGradGuard, InferenceMode) is this just fn(inputs). What other operations computed with
// gradients must be among the inputs: if fn captures such a tensor, backward ends in libtorch's error "Trying to
// backward through the graph a second time".
//
// An undefined input is passed on. Throws ConfigError for an undefined output, and in backward for what it cannot do:
// torch::autograd::grad() instead of backward(), and gradients of gradients.
using Segment = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;
COMPOSER_EXPORT std::vector<at::Tensor> checkpoint(Segment fn, const std::vector<at::Tensor>& inputs);
COMPOSER_EXPORT at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor& input)> fn, const at::Tensor& input);

// Calls of checkpoint() in this process whose gradients have not been computed, and may still be.
COMPOSER_EXPORT int pending_checkpoints();

}  // namespace composer
