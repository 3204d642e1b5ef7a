#pragma once
#include <memory>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

namespace composer {

// Which modules of a model train and which evaluate: parts of it may be frozen by eval().
class ModuleModes {
 public:
  explicit ModuleModes(torch::nn::Module& model) : model_(model), trained_(model.is_training()) {
    for (const auto& module : model.modules(/*include_self=*/false))
      modules_.emplace_back(module, module->is_training());
  }
  void restore() const {
    model_.train(trained_);
    for (const auto& [module, trained] : modules_) module->train(trained);
  }

 private:
  torch::nn::Module& model_;
  bool trained_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modules_;  // parents first
};

}  // namespace composer
