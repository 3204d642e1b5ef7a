#include "composer/models/regressor.h"

#include <typeinfo>

#include <ATen/ops/mse_loss.h>

#include "composer/core/error.h"
#include "composer/metrics/regression.h"

namespace composer::models {

Regressor::Regressor(std::shared_ptr<torch::nn::Module> module, detail::ModuleCall forward, RegressorOptions options)
    : options_(std::move(options)),
      forward_(std::move(forward)),
      weighs_own_loss_(options_.loss_fn || !options_.loss_weight) {
  if (!module) throw ConfigError("Regressor: the module is null");
  auto& [train_metrics, val_metrics, loss_fn, loss_weight, input, target, hyperparameters] = options_;
  const metrics::MeanSquaredError squared({.target = target});
  if (!train_metrics) train_metrics = Metrics(squared);
  if (!val_metrics) val_metrics = Metrics(squared, metrics::MeanAbsoluteError({.target = target}));
  if (!loss_fn && !loss_weight)
    loss_weight = [](const at::Tensor& numbers) { return static_cast<double>(numbers.numel()); };
  register_module("module", std::move(module));
}

Regressor::~Regressor() = default;

Outputs Regressor::forward(const Batch& batch) { return forward_(batch, options_.input); }

Losses Regressor::loss(const Outputs& outputs, const Batch& batch) {
  ++*runs_;
  const at::Tensor &output = outputs.only(), &target = batch.at(options_.target);
  if (options_.loss_fn) return options_.loss_fn(output, target);
  if (output.sizes() != target.sizes())
    throw DataError("Regressor: the outputs are ", output.sizes(), ", and the targets \"", options_.target, "\" ",
                    target.sizes(), "; they must have one shape");
  return at::mse_loss(output, target);
}

LossWeight Regressor::loss_weight(const Batch& batch) const {
  const at::Tensor* target = batch.find(options_.target);
  if (!target || !options_.loss_weight) return {};
  const LossWeight weight = options_.loss_weight(*target);
  return weighs_own_loss_ && typeid(*this) != typeid(Regressor) ? weight.of_loss(runs_) : weight;
}

Metrics Regressor::get_metrics(bool is_train) const {
  return (is_train ? options_.train_metrics : options_.val_metrics)->fresh();
}

}  // namespace composer::models
