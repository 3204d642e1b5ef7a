#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "composer/core/export.h"
#include "composer/core/state_dict.h"
#include "composer/models/classifier.h"

namespace composer::models {

struct LanguageModelOptions {
  double label_smoothing = 0;  // 0 to 1: fraction of each target spread evenly over all tokens in the loss
  std::string input = "input_ids", target = "target";  // name of the tensor in the batch
  StateDict hyperparameters = {};                      // returned by local_hparams()
};

// The options of a Classifier whose loss is the mean over the tokens of a microbatch, with LanguageCrossEntropy and, in
// evaluation, LanguagePerplexity as metrics. Throws ConfigError for options out of range.
COMPOSER_EXPORT ClassifierOptions classifier_options(LanguageModelOptions options);

// Like Classifier, for a module that maps tokens, int64 [N, T], to logits [N, T, vocabulary] of the next tokens. The
// targets are the following tokens, int64 [N, T]; -100 is ignored.
class COMPOSER_EXPORT LanguageModel final : public Classifier {
 public:
  template <class Module>
  explicit LanguageModel(const Module& module, LanguageModelOptions options = {})
      : Classifier(module, classifier_options(std::move(options))) {}
  ~LanguageModel() override;
};

}  // namespace composer::models
