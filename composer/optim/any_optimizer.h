#pragma once
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/parameter_group.h"

namespace torch::optim {
class Optimizer;
}

namespace composer::optim {

using Optimizer = torch::optim::Optimizer;

// The type of the trainer's option `optimizer`: a factory that creates an optimizer for the model's parameters
// (optim::sgd({.lr = 0.1})), or an existing optimizer.
class COMPOSER_EXPORT AnyOptimizer {
 public:
  using Factory = std::function<std::shared_ptr<Optimizer>(NamedParameters parameters)>;

  AnyOptimizer() = default;
  AnyOptimizer(Factory factory) : factory_(std::move(factory)) {}
  // Throws ConfigError for a null pointer.
  template <std::derived_from<Optimizer> T>
  AnyOptimizer(std::shared_ptr<T> made) : factory_(Made{std::move(made)}) {
    check(this->made().get());
  }

  // Names the wrong type in the error; see AnyModel.
  template <class T>
  requires(!std::constructible_from<Factory, T> && !std::convertible_to<T, std::shared_ptr<Optimizer>> &&
           !std::derived_from<std::remove_cvref_t<T>, AnyOptimizer>) AnyOptimizer(T&&) {
    static_assert(std::constructible_from<Factory, T>,
                  "not an optimizer: give optim::adamw({.lr = 1e-3}) or another function of composer/optim, or a "
                  "std::shared_ptr to a torch::optim::Optimizer");
  }

  explicit operator bool() const { return factory_ != nullptr; }
  std::shared_ptr<Optimizer> made() const;  // null if make() would call a factory
  // Returns the existing optimizer, or a new one. Throws ConfigError if the factory returns a null pointer.
  std::shared_ptr<Optimizer> make(NamedParameters parameters) const;

 private:
  struct Made {
    std::shared_ptr<Optimizer> optimizer;
    std::shared_ptr<Optimizer> operator()(const NamedParameters&) const { return optimizer; }
  };
  static void check(const Optimizer* optimizer);

  Factory factory_;
};

// The optimizer by whose rule a parameter group is updated: a part of optim::combined(), else the optimizer itself.
COMPOSER_EXPORT const Optimizer& rule_of(const Optimizer& optimizer, std::size_t group);

// The learning rate of each parameter group.
COMPOSER_EXPORT std::vector<double> learning_rates(const Optimizer& optimizer);
COMPOSER_EXPORT void set_learning_rate(Optimizer& optimizer, std::size_t group, double lr);

}  // namespace composer::optim
