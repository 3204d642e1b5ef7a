#pragma once
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "composer/core/model_access.h"
#include "composer/core/plugins.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/step/batch_undo.h"

namespace composer {

// Undoes steps of the optimizer. At the end of the scope, weights, gradients, requires_grad, buffers, modes of modules,
// RNG state, learning rates, the optimizer's state and what algorithms list in visit_state() are restored bit for bit.
// Within the scope, the optimizer has no state, as before its first step. Holds one more copy of the weights. If the
// constructor throws, nothing has changed.
class TrialUndo {
 public:
  TrialUndo(State& state, const std::vector<Plugin<Algorithm>>& algorithms);
  ~TrialUndo();
  TrialUndo(const TrialUndo&) = delete;
  TrialUndo& operator=(const TrialUndo&) = delete;

 private:
  struct Weight {
    at::Tensor tensor, copy, gradient;
    bool requires_grad;
  };
  void keep(const at::Tensor& parameter);
  void restore_algorithms();

  State& state_;
  BatchUndo undo_;
  std::vector<std::pair<Plugin<Algorithm>, StateDict>> algorithms_;
  std::vector<Weight> weights_;
  ModuleModes modes_;
  std::vector<double> rates_;
  std::remove_cvref_t<decltype(std::declval<torch::optim::Optimizer&>().state())> memory_;
};

}  // namespace composer
