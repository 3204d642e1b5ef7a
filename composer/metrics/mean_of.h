#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/state_dict.h"
#include "composer/core/tensors.h"
#include "composer/metrics/ratio.h"

namespace composer::metrics {

struct MeanOfOptions {
  using Function = std::function<at::Tensor(const Batch& batch, const Outputs& outputs)>;

  Function function = {};  // required: a value for each sample, or for each of anything; 0-d: the mean of the batch
  // Weights of the values, such as a mask, which are broadcast to their shape. Unset: all values have equal weight, and
  // the mean of a batch has that of its samples.
  Function weight = {};
  Better better = Better::LOWER;  // which values are better
  std::string name = "MeanOf";    // what the value is logged as
};

// The mean of any function of a batch and its outputs: MeanOf("Entropy", [](const Batch&, const Outputs& outputs)
// {...}). Values of half precision are summed in double precision.
class COMPOSER_EXPORT MeanOf final : public Ratio {
 public:
  explicit MeanOf(MeanOfOptions options);
  MeanOf(std::string name, MeanOfOptions::Function function)
      : MeanOf(MeanOfOptions{.function = std::move(function), .name = std::move(name)}) {}
  ~MeanOf() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return options_.better; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MeanOf>(options_); }
  StateDict local_hparams() const override;

 private:
  MeanOfOptions options_;
};

}  // namespace composer::metrics
