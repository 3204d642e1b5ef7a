#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

// Some of the parameters, and what trains them: those whose whole name matches `match` (* stands for any characters, ?
// for one), or for which `where` returns true; set exactly one of the two. The optimizer must be one of this library,
// given by its options: optim::adam({...}).
struct OptimizerPart {
  std::string match = {};
  AnyOptimizer optimizer = {};
  std::function<bool(const std::string& name, const at::Tensor& parameter)> where = {};
};

// An optimizer of several, each of which trains a part of the model: the discriminator and the generator of a GAN, or a
// backbone and its head. A parameter belongs to the first part that matches it. ConfigError is thrown for a parameter
// that is in no part, and for a part without parameters.
COMPOSER_EXPORT AnyOptimizer combined(std::vector<OptimizerPart> parts);

// Its param_groups() are those of the parts, one after another; rule(group) returns the part that a group is of.
class COMPOSER_EXPORT Combined final : public NamedOptimizer {
 public:
  Combined(const NamedParameters& parameters, const std::vector<OptimizerPart>& parts);

 private:
  // Not called: each group has the rule of its part.
  void prepare(const at::Tensor&, ParameterState&, const Options&) const override {}
  void update(detail::Batch&, const Options&) override {}
};

}  // namespace composer::optim
