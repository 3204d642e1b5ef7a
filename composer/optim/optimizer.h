#pragma once
#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace torch::optim {
class Optimizer;
}

namespace composer::optim {

using Optimizer = torch::optim::Optimizer;

// What the trainer's option accepts: how to make an optimizer of the model's parameters (optim::sgd({.lr = 0.1})), or
// one that has been made, for those who want their own parameter groups.
class AnyOptimizer {
 public:
  using Factory = std::function<std::shared_ptr<Optimizer>(std::vector<at::Tensor> parameters)>;

  AnyOptimizer() = default;
  AnyOptimizer(Factory factory) : factory_(std::move(factory)) {}
  template <std::derived_from<Optimizer> T>
  AnyOptimizer(std::shared_ptr<T> made)
      : factory_([made = std::move(made)](std::vector<at::Tensor>) { return made; }) {}

  explicit operator bool() const { return factory_ != nullptr; }
  std::shared_ptr<Optimizer> make(std::vector<at::Tensor> parameters) const { return factory_(std::move(parameters)); }

 private:
  Factory factory_;
};

struct SgdOptions {
  double lr = 0;  // > 0, required
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // added to the gradient (L2)
  bool nesterov = false;    // needs momentum, and no dampening
};
COMPOSER_EXPORT AnyOptimizer sgd(SgdOptions options);

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // times the learning rate (arXiv:1711.05101, as in PyTorch)
  bool amsgrad = false;
};
COMPOSER_EXPORT AnyOptimizer adamw(AdamWOptions options = {});

// The learning rate of each parameter group.
COMPOSER_EXPORT std::vector<double> learning_rates(const Optimizer& optimizer);
COMPOSER_EXPORT void set_learning_rate(Optimizer& optimizer, std::size_t group, double lr);

}  // namespace composer::optim
