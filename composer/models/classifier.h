#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/nn/pimpl.h>

#include "composer/core/export.h"
#include "composer/core/loss_weight.h"
#include "composer/core/model.h"
#include "composer/core/state_dict.h"
#include "composer/models/module_call.h"

namespace composer::models {

struct ClassifierOptions {
  std::int64_t num_classes = 0;               // required unless both train_metrics and val_metrics are given
  std::optional<Metrics> train_metrics = {};  // unset: MulticlassAccuracy
  std::optional<Metrics> val_metrics = {};    // unset: CrossEntropy and MulticlassAccuracy
  // loss of (logits, targets), a mean over the batch; unset: soft_cross_entropy
  std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& target)> loss_fn = {};
  // divisor of that mean; unset: the number of samples if there is a loss_fn, otherwise the number of targets that are
  // not -100. In a derived class that overrides loss(), a loss_weight without a loss_fn describes that loss()
  std::function<LossWeight(const at::Tensor& target)> loss_weight = {};
  std::string input = "input", target = "target";  // name of the tensor in the batch
  StateDict hyperparameters = {};                  // returned by local_hparams()
  std::string ready = {};  // name of a ready model, which models::make() makes again with these hyperparameters
};

// Makes a trainable model of any torch module with `at::Tensor forward(at::Tensor)` that returns logits [N, C, ...],
// including torch::nn::Sequential, or with `at::Tensor forward(const Batch&)`. The module is registered as "module".
// loss_weight() describes this class's loss(). If a derived class's loss() does not call it, parts of a batch are
// weighted by their samples.
class COMPOSER_EXPORT Classifier : public Model {
 public:
  template <class Module>
  requires std::derived_from<Module, torch::nn::Module> Classifier(std::shared_ptr<Module> module,
                                                                   ClassifierOptions options)
      : Classifier(module, detail::call_of(module.get()), std::move(options)) {}
  // For torch's module holders: torch::nn::Sequential(...), torch::nn::Linear(4, 2).
  template <class Module>
  Classifier(const torch::nn::ModuleHolder<Module>& module, ClassifierOptions options)
      : Classifier(module.ptr(), std::move(options)) {}
  ~Classifier() override;

  Outputs forward(const Batch& batch) override;
  Losses loss(const Outputs& outputs, const Batch& batch) override;
  LossWeight loss_weight(const Batch& batch) const override;
  Metrics get_metrics(bool is_train) const override;
  StateDict local_hparams() const override { return options_.hyperparameters; }

  std::int64_t num_classes() const { return options_.num_classes; }
  const std::string& ready_name() const { return options_.ready; }  // empty: it is no ready model

 private:
  Classifier(std::shared_ptr<torch::nn::Module> module, detail::ModuleCall forward, ClassifierOptions options);

  ClassifierOptions options_;
  detail::ModuleCall forward_;  // forward() of the registered module
  bool weighs_own_loss_;        // whether loss_weight() is valid only where this class's loss() runs
  std::shared_ptr<std::uint64_t> runs_ = std::make_shared<std::uint64_t>(0);  // calls of loss()
};

}  // namespace composer::models
