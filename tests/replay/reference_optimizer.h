// The formulas of the recorded optimizers, for one parameter and in double precision.
#pragma once
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "tests/replay/compare.h"

namespace composer::replay {

class ReferenceOptimizer {
 public:
  // Throws Unsupported for a class without a formula here.
  ReferenceOptimizer(const Json& recorded, const at::Tensor& initial);
  void step(const at::Tensor& gradient, double lr);
  const at::Tensor& value() const { return value_; }
  // Under the names of torch: "exp_avg".
  const std::map<std::string, at::Tensor>& state() const { return state_; }

 private:
  double option(const char* name, double otherwise) const { return recorded_.value(name, otherwise); }
  bool flag(const char* name) const { return recorded_.value(name, false); }
  at::Tensor& state(const char* name);
  void sgd(const at::Tensor& gradient, double lr, bool decoupled);
  void adam(const at::Tensor& gradient, double lr, double beta2);
  void rmsprop(const at::Tensor& gradient, double lr);
  void adagrad(const at::Tensor& gradient, double lr);

  const Json& recorded_;
  std::string name_;
  at::Tensor value_;
  std::map<std::string, at::Tensor> state_;
  int steps_ = 0;
};

}  // namespace composer::replay
