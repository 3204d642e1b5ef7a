#include "composer/core/frozen.h"

#include "composer/core/model_access.h"

namespace composer {

Frozen::Frozen(torch::nn::Module& module) : parameters_(parameters(module)) {
  std::erase_if(parameters_, [](const at::Tensor& one) { return !one.requires_grad(); });
  for (const at::Tensor& one : parameters_) one.set_requires_grad(false);
}

Frozen::~Frozen() {
  for (const at::Tensor& one : parameters_) one.set_requires_grad(true);
}

}  // namespace composer
