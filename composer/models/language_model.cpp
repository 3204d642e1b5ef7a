#include "composer/models/language_model.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "composer/core/option.h"
#include "composer/metrics/language.h"
#include "composer/util/loss.h"

namespace composer::models {
namespace {

std::vector<Option<LanguageModelOptions>> language_model_options() {
  using O = LanguageModelOptions;
  return all_options(option("label_smoothing", &O::label_smoothing).from_to(0, 1), option("input", &O::input),
                     option("target", &O::target), part("hyperparameters", &O::hyperparameters, "values by name"));
}

}  // namespace

ClassifierOptions classifier_options(LanguageModelOptions options) {
  const double smoothing = options.label_smoothing;
  check(options, language_model_options(), "LanguageModel: ", "");
  return {.train_metrics = Metrics(metrics::LanguageCrossEntropy({.target = options.target})),
          .val_metrics = Metrics(metrics::LanguageCrossEntropy({.target = options.target}),
                                 metrics::LanguagePerplexity({.target = options.target})),
          .loss_fn =
              [smoothing](const at::Tensor& logits, const at::Tensor& target) {
                const at::Tensor flat = logits.flatten(0, 1), next = target.flatten();
                if (smoothing == 0) return soft_cross_entropy(flat, next);
                return at::cross_entropy_loss(flat, next, {}, at::Reduction::Mean, -100, smoothing);
              },
          .loss_weight = [](const at::Tensor& target) { return target_weight(target); },
          .input = std::move(options.input),
          .target = std::move(options.target),
          .hyperparameters = std::move(options.hyperparameters)};
}

LanguageModel::~LanguageModel() = default;

}  // namespace composer::models
