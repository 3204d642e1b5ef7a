#pragma once
// Plain gradient descent whose step can be skipped on the device.
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "composer/optim/optimizer.h"
#include "composer/optim/skippable_step.h"

namespace composer::test {

class SkippableSgd final : public torch::optim::SGD, public optim::SkippableStep {
 public:
  SkippableSgd(std::vector<at::Tensor> parameters, double lr) : SGD(std::move(parameters), {lr}), lr_(lr) {}

  void step_unless(const at::Tensor& found_inf) override {
    const at::NoGradGuard no_grad;
    const at::Tensor skip = found_inf.ne(0);
    for (const at::Tensor& parameter : param_groups().front().params())
      if (parameter.grad().defined())
        parameter.copy_(at::where(skip, parameter, parameter.add(parameter.grad(), -lr_)));
  }

 private:
  double lr_;
};

inline optim::AnyOptimizer skippable_sgd(double lr) {
  return optim::AnyOptimizer::Factory([lr](const optim::NamedParameters& parameters) {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : parameters) tensors.push_back(tensor);
    return std::make_shared<SkippableSgd>(std::move(tensors), lr);
  });
}

}  // namespace composer::test
