#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/loss_weight.h"
#include "composer/core/metric.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/ratio.h"

namespace composer::metrics {

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;            // targets of this class do not count
  bool mean_of_batches = false;                // each batch has the same weight, whatever its size, as in Composer
  std::string name = "CrossEntropy";           // what the value is logged as
  std::string output = {}, target = "target";  // names of tensors; an empty output: the only one
};

// Mean cross entropy of logits [N, C, ...] with classes [N, ...] or probabilities [N, C, ...].
class COMPOSER_EXPORT CrossEntropy final : public Ratio {
 public:
  explicit CrossEntropy(CrossEntropyOptions options = {});
  explicit CrossEntropy(EmptyOptions) : CrossEntropy() {}
  ~CrossEntropy() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::LOWER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<CrossEntropy>(options_); }
  StateDict local_hparams() const override;

 private:
  CrossEntropyOptions options_;
};

struct LossMetricOptions {
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> loss_function = {};  // returns a mean
  bool mean_of_batches = false;  // each batch has the same weight, whatever its size, as in Composer
  // The divisor of the mean that loss_function returns, such as target_weight for a loss that ignores targets. Unset:
  // the number of samples.
  std::function<LossWeight(const at::Tensor& target)> loss_weight = {};
  std::string name = "LossMetric";             // what the value is logged as
  std::string output = {}, target = "target";  // names of tensors; an empty output: the only one
};

// Mean of any loss over all samples, or weighted by loss_weight. loss_function gets outputs and targets of half
// precision as float32.
class COMPOSER_EXPORT LossMetric final : public Ratio {
 public:
  explicit LossMetric(LossMetricOptions options);
  ~LossMetric() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::LOWER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<LossMetric>(options_); }
  StateDict local_hparams() const override;

 private:
  LossMetricOptions options_;
};

}  // namespace composer::metrics
