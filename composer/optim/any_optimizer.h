#pragma once
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/parameter_group.h"

namespace torch::optim {
class Optimizer;
}

namespace composer::optim {

using Optimizer = torch::optim::Optimizer;

// What the trainer's option accepts: how to make an optimizer of the model's parameters (optim::sgd({.lr = 0.1})), or
// one that has been made.
class AnyOptimizer {
 public:
  using Factory = std::function<std::shared_ptr<Optimizer>(NamedParameters parameters)>;

  AnyOptimizer() = default;
  AnyOptimizer(Factory factory) : factory_(std::move(factory)) {}
  template <std::derived_from<Optimizer> T>
  AnyOptimizer(std::shared_ptr<T> made) : factory_([made = std::move(made)](const NamedParameters&) { return made; }) {}

  explicit operator bool() const { return factory_ != nullptr; }
  std::shared_ptr<Optimizer> make(NamedParameters parameters) const { return factory_(std::move(parameters)); }

 private:
  Factory factory_;
};

// The learning rate of each parameter group.
COMPOSER_EXPORT std::vector<double> learning_rates(const Optimizer& optimizer);
COMPOSER_EXPORT void set_learning_rate(Optimizer& optimizer, std::size_t group, double lr);

}  // namespace composer::optim
