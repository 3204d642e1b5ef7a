#pragma once
#include <concepts>
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

struct RegressorOptions {
  std::optional<Metrics> train_metrics = {};  // unset: MeanSquaredError
  std::optional<Metrics> val_metrics = {};    // unset: MeanSquaredError and MeanAbsoluteError
  // loss of (outputs, targets), a mean over the batch; unset: the mean squared error
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> loss_fn = {};
  // divisor of that mean; unset: the number of samples if there is a loss_fn, otherwise the number of elements of the
  // targets. In a derived class that overrides loss(), a loss_weight without a loss_fn describes that loss()
  std::function<LossWeight(const at::Tensor& target)> loss_weight = {};
  std::string input = "input", target = "target";  // name of the tensor in the batch
  StateDict hyperparameters = {};                  // returned by local_hparams()
};

// Like Classifier, for a module that returns numbers of the targets' shape. Other shapes are a DataError: libtorch
// would compare each output [N, 1] with each target [N].
class COMPOSER_EXPORT Regressor : public Model {
 public:
  template <class Module>
  requires std::derived_from<Module, torch::nn::Module>
  explicit Regressor(std::shared_ptr<Module> module, RegressorOptions options = {})
      : Regressor(module, detail::call_of(module.get()), std::move(options)) {}
  template <class Module>
  explicit Regressor(const torch::nn::ModuleHolder<Module>& module, RegressorOptions options = {})
      : Regressor(module.ptr(), std::move(options)) {}
  ~Regressor() override;

  Outputs forward(const Batch& batch) override;
  Losses loss(const Outputs& outputs, const Batch& batch) override;
  LossWeight loss_weight(const Batch& batch) const override;
  Metrics get_metrics(bool is_train) const override;
  StateDict local_hparams() const override { return options_.hyperparameters; }

 private:
  Regressor(std::shared_ptr<torch::nn::Module> module, detail::ModuleCall forward, RegressorOptions options);

  RegressorOptions options_;
  detail::ModuleCall forward_;  // forward() of the registered module
  bool weighs_own_loss_;        // whether loss_weight() is valid only where this class's loss() runs
  std::shared_ptr<std::uint64_t> runs_ = std::make_shared<std::uint64_t>(0);  // calls of loss()
};

}  // namespace composer::models
