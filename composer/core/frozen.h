#pragma once
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace torch::nn {
class Module;
}

namespace composer {

// While it lives, the parameters of a module require no gradients. What is computed meanwhile trains the rest of the
// model through this module, but not the module itself:
//
//   Losses loss(const Outputs& outputs, const Batch& batch) override {
//     const at::Tensor fake = outputs.only();
//     const at::Tensor judged = judge->forward(fake.detach());  // trains the judge alone
//     const Frozen frozen(*judge);
//     return {{"judge", loss_of(judged, 0)}, {"forger", loss_of(judge->forward(fake), 1)}};  // the second, the rest
//   }
//
// At its end, also after an exception, they are as before. Gradient checkpointing (util/recompute.h) keeps them frozen
// where it repeats, in the backward pass, what was computed meanwhile. Only parameters are frozen: a batch norm in
// training mode still takes its statistics from this batch too, unless you call eval() on it.
class COMPOSER_EXPORT Frozen {
 public:
  explicit Frozen(torch::nn::Module& module);
  // For what was frozen at an earlier time, and is computed again.
  explicit Frozen(std::vector<at::Tensor> parameters);
  ~Frozen();
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;

  // What all objects that this thread has made, and that live, keep frozen.
  static std::vector<at::Tensor> all();

 private:
  std::shared_ptr<const std::vector<at::Tensor>> parameters_;  // those that required gradients
};

}  // namespace composer
