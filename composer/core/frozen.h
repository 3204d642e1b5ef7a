#pragma once
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
// At its end, also after an exception, they are as before.
class COMPOSER_EXPORT Frozen {
 public:
  explicit Frozen(torch::nn::Module& module);
  ~Frozen();
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;

 private:
  std::vector<at::Tensor> parameters_;  // those that required gradients
};

}  // namespace composer
