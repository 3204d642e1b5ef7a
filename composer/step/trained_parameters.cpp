#include "composer/step/trained_parameters.h"

#include "composer/optim/parameter_group.h"

namespace composer {

std::vector<at::Tensor> trained_tensors(const torch::nn::Module& module) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : optim::parameters_of(module))
    if (tensor.requires_grad()) tensors.push_back(tensor);
  return tensors;
}

}  // namespace composer
