#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace composer {

// The parameters that require gradients, each once, in the module's order.
std::vector<at::Tensor> trained_tensors(const torch::nn::Module& module);

}  // namespace composer
