#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/optim/parameter_group.h"

namespace composer {

// The parameters that require gradients, each once, in the module's order.
optim::NamedParameters trained_parameters(const torch::nn::Module& module);
std::vector<at::Tensor> trained_tensors(const torch::nn::Module& module);

}  // namespace composer
