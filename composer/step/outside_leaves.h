#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer {

// The leaves of the autograd graph of `loss` that require gradients and are not among `known`: parameters of modules
// that were not registered, for example. What runs inside of checkpoint() is not in the graph.
std::vector<at::Tensor> outside_leaves(const at::Tensor& loss, const std::vector<at::Tensor>& known);

}  // namespace composer
