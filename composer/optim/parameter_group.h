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

// The module's parameters in its order; one that is there under several names comes once, under the first of them.
COMPOSER_EXPORT NamedParameters parameters_of(const torch::nn::Module& module);

// Options for some of the parameters: those whose whole name fits `match` (* stands for any characters, ? for one), or
// for which `where` is true; exactly one of the two is given. A parameter belongs to the first group that wants it.
// What is not set is as in the optimizer's options; an optimizer refuses what it does not have. A group without a
// parameter is a ConfigError.
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
