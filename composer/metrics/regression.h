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
  std::string name = {};                       // what the value is logged as; empty: the name of the class
  std::string output = {}, target = "target";  // names of tensors of one shape; an empty output: the only one
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

class COMPOSER_EXPORT RootMeanSquaredError final : public Ratio {
 public:
  explicit RootMeanSquaredError(RegressionOptions options = {});
  explicit RootMeanSquaredError(EmptyOptions) : RootMeanSquaredError() {}
  ~RootMeanSquaredError() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::LOWER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override { return Ratio::compute().sqrt(); }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<RootMeanSquaredError>(options_); }
  StateDict local_hparams() const override;

 private:
  RegressionOptions options_;
};

// Mean of |output - target| / |target|, as a fraction: 0.1 is ten percent. Targets below 1.17e-6 divide as if they were
// 1.17e-6, as in torchmetrics.
class COMPOSER_EXPORT MeanAbsolutePercentageError final : public Ratio {
 public:
  explicit MeanAbsolutePercentageError(RegressionOptions options = {});
  explicit MeanAbsolutePercentageError(EmptyOptions) : MeanAbsolutePercentageError() {}
  ~MeanAbsolutePercentageError() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::LOWER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MeanAbsolutePercentageError>(options_); }
  StateDict local_hparams() const override;

 private:
  RegressionOptions options_;
};

// Mean of 2 |output - target| / (|output| + |target|), from 0 to 2.
class COMPOSER_EXPORT SymmetricMeanAbsolutePercentageError final : public Ratio {
 public:
  explicit SymmetricMeanAbsolutePercentageError(RegressionOptions options = {});
  explicit SymmetricMeanAbsolutePercentageError(EmptyOptions) : SymmetricMeanAbsolutePercentageError() {}
  ~SymmetricMeanAbsolutePercentageError() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::LOWER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override {
    return std::make_shared<SymmetricMeanAbsolutePercentageError>(options_);
  }
  StateDict local_hparams() const override;

 private:
  RegressionOptions options_;
};

}  // namespace composer::metrics
