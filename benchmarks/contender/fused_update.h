#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

#include "benchmarks/contender/workload.h"

namespace composer::bench {

// The update rule of a workload, in one fused operator of libtorch.
class FusedUpdate {
 public:
  FusedUpdate(Update rule, std::vector<at::Tensor> parameters, double sgd_lr = kSgdLr);
  // Updates the parameters, and makes their gradients undefined.
  void step();

 private:
  Update rule_;
  double sgd_lr_;
  std::vector<at::Tensor> parameters_, gradients_, first_, second_, steps_;
  bool is_first_step_ = true;
};

}  // namespace composer::bench
