#include "composer/step/trained_parameters.h"

#include <torch/nn/module.h>

namespace composer {

optim::NamedParameters trained_parameters(const torch::nn::Module& module) {
  optim::NamedParameters parameters = optim::parameters_of(module);
  std::erase_if(parameters, [](const optim::NamedParameter& parameter) { return !parameter.tensor.requires_grad(); });
  return parameters;
}

std::vector<at::Tensor> trained_tensors(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : trained_parameters(module)) tensors.push_back(tensor);
  return tensors;
}

}  // namespace composer
