#pragma once
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

namespace composer::replay {

// Module::to() converts whole numbers, such as counts of batches, as well.
inline void convert_floating_point(const torch::nn::Module& model, at::ScalarType type) {
  const auto convert = [type](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& one : tensors)
      if (one.is_floating_point()) one.set_data(one.detach().to(type));
  };
  convert(model.parameters());
  convert(model.buffers());
}

}  // namespace composer::replay
