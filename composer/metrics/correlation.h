#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/metric_parts.h"
#include "composer/core/state_dict.h"

namespace composer::metrics {

enum class MultiOutput : std::uint8_t {
  UNIFORM_AVERAGE,   // the mean over outputs
  VARIANCE_WEIGHTED  // the mean weighted by the variance of each output's targets
};

struct R2ScoreOptions {
  std::int64_t adjusted = 0;  // >= 0: number of independent regressors, for the adjusted value; 0: not adjusted
  MultiOutput multioutput = MultiOutput::UNIFORM_AVERAGE;  // or VARIANCE_WEIGHTED: by the variance of the targets
  std::vector<std::string> output_names = {};              // also reports a value for each of these outputs
  std::string name = "R2Score";                            // what the value is logged as
  std::string output = {}, target = "target";  // names of tensors of one shape; an empty output: the only one
};

struct CorrelationOptions {
  std::vector<std::string> output_names = {};  // also reports a value for each of these outputs
  std::string name = {};                       // what the value is logged as; empty: the name of the class
  std::string output = {}, target = "target";  // names of tensors of one shape; an empty output: the only one
};

// A metric of outputs and targets [N, ...] by their means, variances and covariance, for each output (each place of the
// last dimensions). Batches are measured around their own means and merged (Chan et al.), so values that are large
// beside their variance lose no digits.
class COMPOSER_EXPORT MomentsMetric : public Metric, public HasSeveralValues, public KeepsRows {
 public:
  ~MomentsMetric() override;
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override;
  std::vector<std::string> value_names() const override { return output_names(); }
  at::Tensor compute_values() const override;
  void reset() override { rows_.clear(); }
  void visit_rows(const VisitRows& visit) override;

 protected:
  // Of float64 sums for each output: squares of deviations, products of deviations of outputs and targets, and squared
  // errors. `count`: of samples, 0-d.
  struct Moments {
    at::Tensor count, output_squares, target_squares, products, squared_errors;
  };
  virtual at::Tensor score(const Moments& moments) const = 0;  // for each output
  virtual at::Tensor average(const at::Tensor& scores, const Moments& moments) const;
  virtual const std::vector<std::string>& output_names() const = 0;
  virtual const std::string& output_name() const = 0;
  virtual const std::string& target_name() const = 0;

 private:
  Moments moments() const;

  std::vector<at::Tensor> rows_;  // of some batches each: [1, 7, outputs]
};

// Coefficient of determination: 1 - squared errors / squared deviations of the targets from their mean. Of targets that
// are all equal it is 1 without errors, and 0 with. NaN with fewer than two samples.
class COMPOSER_EXPORT R2Score final : public MomentsMetric {
 public:
  explicit R2Score(R2ScoreOptions options = {});
  explicit R2Score(EmptyOptions) : R2Score() {}
  ~R2Score() override;
  std::string name() const override { return options_.name; }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<R2Score>(options_); }
  StateDict local_hparams() const override;

 private:
  at::Tensor score(const Moments& moments) const override;
  at::Tensor average(const at::Tensor& scores, const Moments& moments) const override;
  const std::vector<std::string>& output_names() const override { return options_.output_names; }
  const std::string& output_name() const override { return options_.output; }
  const std::string& target_name() const override { return options_.target; }

  R2ScoreOptions options_;
};

// Pearson's correlation of outputs and targets, as the mean over outputs. NaN if outputs or targets are all equal.
class COMPOSER_EXPORT PearsonCorrCoef final : public MomentsMetric {
 public:
  explicit PearsonCorrCoef(CorrelationOptions options = {});
  explicit PearsonCorrCoef(EmptyOptions) : PearsonCorrCoef() {}
  ~PearsonCorrCoef() override;
  std::string name() const override { return options_.name; }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<PearsonCorrCoef>(options_); }
  StateDict local_hparams() const override;

 private:
  at::Tensor score(const Moments& moments) const override;
  const std::vector<std::string>& output_names() const override { return options_.output_names; }
  const std::string& output_name() const override { return options_.output; }
  const std::string& target_name() const override { return options_.target; }

  CorrelationOptions options_;
};

// Spearman's rank correlation: Pearson's of the ranks, equal values having the mean of their ranks. Keeps all outputs
// and targets, 16 bytes for each pair.
class COMPOSER_EXPORT SpearmanCorrCoef final : public Metric, public HasSeveralValues, public KeepsRows {
 public:
  explicit SpearmanCorrCoef(CorrelationOptions options = {});
  explicit SpearmanCorrCoef(EmptyOptions) : SpearmanCorrCoef() {}
  ~SpearmanCorrCoef() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override;
  std::vector<std::string> value_names() const override { return options_.output_names; }
  at::Tensor compute_values() const override;
  void reset() override { rows_.clear(); }
  void visit_rows(const VisitRows& visit) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<SpearmanCorrCoef>(options_); }
  StateDict local_hparams() const override;

 private:
  at::Tensor scores() const;

  CorrelationOptions options_;
  std::vector<at::Tensor> rows_;  // [N, 2, outputs]
};

}  // namespace composer::metrics
