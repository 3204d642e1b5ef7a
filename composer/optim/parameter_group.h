#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace torch::nn {
class Module;
}

namespace composer::optim {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};
using NamedParameters = std::vector<NamedParameter>;

// Returns the module's parameters in its order. A parameter registered under several names is listed once, under its
// first name.
COMPOSER_EXPORT NamedParameters parameters_of(const torch::nn::Module& module);

// Options for some of the parameters: those whose whole name matches `match` (* stands for any characters, ? for one),
// or for which `where` returns true; set exactly one of the two. A parameter belongs to the first group that matches
// it. Unset options take the optimizer's values. ConfigError is thrown for an option that the optimizer does not have,
// and for a group without parameters.
struct ParameterGroup {
  std::string match = {};
  std::function<bool(const std::string& name, const at::Tensor& parameter)> where = {};
  std::optional<double> lr = {};
  std::optional<double> weight_decay = {};
  std::optional<double> momentum = {};
  std::optional<double> beta1 = {}, beta2 = {};
  std::optional<double> eps = {};
};

}  // namespace composer::optim
