#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/ratio.h"

namespace composer::metrics {

struct LanguageOptions {
  std::int64_t ignore_index = -100;            // tokens with this target do not count
  std::string name = {};                       // what the value is logged as; empty: the name of the class
  std::string output = {}, target = "target";  // names of tensors; an empty output: the only one
};

// Mean cross entropy of tokens, from logits [..., vocabulary] and targets [...].
class COMPOSER_EXPORT LanguageCrossEntropy : public Ratio {
 public:
  explicit LanguageCrossEntropy(LanguageOptions options = {});
  explicit LanguageCrossEntropy(EmptyOptions) : LanguageCrossEntropy() {}
  ~LanguageCrossEntropy() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::LOWER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<LanguageCrossEntropy>(options_); }
  StateDict local_hparams() const override;

 protected:
  LanguageOptions options_;
};

// The exponential of LanguageCrossEntropy.
class COMPOSER_EXPORT LanguagePerplexity final : public LanguageCrossEntropy {
 public:
  explicit LanguagePerplexity(LanguageOptions options = {});
  explicit LanguagePerplexity(EmptyOptions) : LanguagePerplexity() {}
  ~LanguagePerplexity() override;
  at::Tensor compute() const override { return Ratio::compute().exp(); }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<LanguagePerplexity>(options_); }
};

// Share of tokens whose highest logit is the target. Throws DataError (on the host) for a target that is neither in the
// vocabulary nor ignored.
class COMPOSER_EXPORT MaskedAccuracy final : public Ratio {
 public:
  explicit MaskedAccuracy(LanguageOptions options = {});
  explicit MaskedAccuracy(EmptyOptions) : MaskedAccuracy() {}
  ~MaskedAccuracy() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MaskedAccuracy>(options_); }
  StateDict local_hparams() const override;

 private:
  LanguageOptions options_;
};

}  // namespace composer::metrics
