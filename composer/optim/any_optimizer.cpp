#include "composer/optim/any_optimizer.h"

#include <set>

#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

NamedParameters parameters_of(const torch::nn::Module& module) {
  NamedParameters parameters;
  std::set<const void*> seen;
  for (auto& [name, tensor] : named_parameters(module))
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) parameters.push_back({std::move(name), std::move(tensor)});
  return parameters;
}

void AnyOptimizer::check(const Optimizer* optimizer) {
  if (!optimizer)
    throw ConfigError("optimizer: is a null pointer; pass an optimizer, or a factory such as optim::adamw({...})");
}

std::shared_ptr<Optimizer> AnyOptimizer::made() const {
  const Made* made = factory_.target<Made>();
  return made ? made->optimizer : nullptr;
}

std::shared_ptr<Optimizer> AnyOptimizer::make(NamedParameters parameters) const {
  std::shared_ptr<Optimizer> optimizer = factory_(std::move(parameters));
  check(optimizer.get());
  return optimizer;
}

const Optimizer& rule_of(const Optimizer& optimizer, std::size_t group) {
  const auto* const ours = dynamic_cast<const NamedOptimizer*>(&optimizer);
  return ours ? ours->rule(group) : optimizer;
}

std::vector<double> learning_rates(const Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void set_learning_rate(Optimizer& optimizer, std::size_t group, double lr) {
  optimizer.param_groups().at(group).options().set_lr(lr);
}

}  // namespace composer::optim
