#include "composer/models/classifier.h"

#include <typeinfo>

#include "composer/core/error.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/util/loss.h"

namespace composer::models {

Classifier::Classifier(std::shared_ptr<torch::nn::Module> module, detail::ModuleCall forward, ClassifierOptions options)
    : options_(std::move(options)),
      forward_(std::move(forward)),
      weighs_own_loss_(options_.loss_fn || !options_.loss_weight) {
  if (!module) throw ConfigError("Classifier: the module is null");
  auto& [num_classes, train_metrics, val_metrics, loss_fn, loss_weight, input, target, hyperparameters, ready] =
      options_;
  const bool defaults = !train_metrics || !val_metrics;
  if (num_classes < 0 || (defaults && num_classes < 1))
    throw ConfigError("Classifier: num_classes must be >= 1, got ", num_classes);
  const auto accuracy = [&] {  // ignores the targets that the loss ignores
    return metrics::MulticlassAccuracy({.num_classes = num_classes, .ignore_index = -100, .target = target});
  };
  if (!train_metrics) train_metrics = Metrics(accuracy());
  if (!val_metrics) val_metrics = Metrics(metrics::CrossEntropy({.target = target}), accuracy());
  if (!loss_fn) {
    loss_fn = [](const at::Tensor& logits, const at::Tensor& labels) { return soft_cross_entropy(logits, labels); };
    if (!loss_weight) loss_weight = [](const at::Tensor& labels) { return target_weight(labels); };
  }
  register_module("module", std::move(module));
}

Classifier::~Classifier() = default;

Outputs Classifier::forward(const Batch& batch) { return forward_(batch, options_.input); }

Losses Classifier::loss(const Outputs& outputs, const Batch& batch) {
  ++*runs_;
  return options_.loss_fn(outputs.only(), batch.at(options_.target));
}

// The weight is unknown if the targets are made later, by microbatch_transforms.
LossWeight Classifier::loss_weight(const Batch& batch) const {
  const at::Tensor* target = batch.find(options_.target);
  if (!target || !options_.loss_weight) return {};
  const LossWeight weight = options_.loss_weight(*target);
  return weighs_own_loss_ && typeid(*this) != typeid(Classifier) ? weight.of_loss(runs_) : weight;
}

Metrics Classifier::get_metrics(bool is_train) const {
  return (is_train ? options_.train_metrics : options_.val_metrics)->fresh();
}

}  // namespace composer::models
