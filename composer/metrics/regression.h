#pragma once
#include <memory>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/ratio.h"

namespace composer::metrics {

struct RegressionOptions {
  std::string name = {};                  // the class's name if empty
  std::string output, target = "target";  // names of tensors of one shape; an empty output: the only one
};

class COMPOSER_EXPORT MeanSquaredError final : public Ratio {
 public:
  explicit MeanSquaredError(RegressionOptions options = {});
  explicit MeanSquaredError(EmptyOptions) : MeanSquaredError() {}
  ~MeanSquaredError() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::LOWER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MeanSquaredError>(options_); }
  StateDict local_hparams() const override;

 private:
  RegressionOptions options_;
};

class COMPOSER_EXPORT MeanAbsoluteError final : public Ratio {
 public:
  explicit MeanAbsoluteError(RegressionOptions options = {});
  explicit MeanAbsoluteError(EmptyOptions) : MeanAbsoluteError() {}
  ~MeanAbsoluteError() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::LOWER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MeanAbsoluteError>(options_); }
  StateDict local_hparams() const override;

 private:
  RegressionOptions options_;
};

}  // namespace composer::metrics
