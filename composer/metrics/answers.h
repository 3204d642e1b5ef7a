#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/metric_parts.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/ratio.h"
#include "composer/metrics/sum.h"

namespace composer::metrics {

class ProbabilitiesOf;

struct BinaryOptions {
  double threshold = 0.5;                         // probability above which the answer is yes, in [0, 1]
  bool logits = false;                            // the outputs are always logits, not probabilities
  std::optional<std::int64_t> ignore_index = {};  // targets of this value do not count; unset: all count
  std::string name = {};                          // what the value is logged as; empty: the name of the class
  std::string output = {}, target = "target";     // names of tensors of one shape; an empty output: the only one
};

struct BinaryFBetaOptions {
  double beta = 1;  // > 0: recall counts beta times as much as precision
  // This and the following options are those of BinaryOptions.
  double threshold = 0.5;
  bool logits = false;
  std::optional<std::int64_t> ignore_index = {};
  std::string name = {};
  std::string output = {}, target = "target";
};

struct MultilabelOptions {
  std::int64_t num_labels = 0;                    // required, >= 2
  Average average = Average::MACRO;               // over labels; MICRO: over all answers together
  double threshold = 0.5;                         // probability above which the answer is yes, in [0, 1]
  bool logits = false;                            // the outputs are always logits, not probabilities
  std::optional<std::int64_t> ignore_index = {};  // targets of this value do not count; unset: all count
  bool per_class = false;                         // also reports a value for each label
  std::vector<std::string> class_names = {};      // names of these values; empty: the numbers of the labels
  std::string name = {};                          // what the value is logged as; empty: the name of the class
  std::string output = {}, target = "target";     // names of tensors of one shape; an empty output: the only one
};

struct MultilabelFBetaOptions {
  double beta = 1;  // > 0: recall counts beta times as much as precision
  // This and the following options are those of MultilabelOptions.
  std::int64_t num_labels = 0;
  Average average = Average::MACRO;
  double threshold = 0.5;
  bool logits = false;
  std::optional<std::int64_t> ignore_index = {};
  bool per_class = false;
  std::vector<std::string> class_names = {};
  std::string name = {};
  std::string output = {}, target = "target";
};

// Counts the answers to yes-no questions: one for each sample, or one for each label [N, L, ...]. Outputs and targets
// (0 or 1) have one shape. A quotient without anything to divide by is 0, as in torchmetrics; the value is NaN if
// nothing was counted.
class COMPOSER_EXPORT AnswersMetric : public Metric, public HasSeveralValues {
 public:
  ~AnswersMetric() override;
  std::string name() const override { return plan_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override;
  std::vector<std::string> value_names() const override;
  at::Tensor compute_values() const override;
  void reset() override;
  void visit_sums(const VisitSum& visit) override;

 protected:
  enum class Score : std::uint8_t { ACCURACY, PRECISION, RECALL, SPECIFICITY, F_BETA };
  // What all options come to.
  struct Plan {
    Score score;
    double beta = 1;
    std::int64_t labels = 0;  // 0: binary
    Average average = Average::MICRO;
    double threshold = 0.5;
    bool logits = false;
    std::optional<std::int64_t> ignore_index = {};
    bool per_class = false;
    std::vector<std::string> class_names = {};
    std::string name, output, target;
  };
  AnswersMetric(Score score, const char* name, const BinaryOptions& options, double beta = 1);
  AnswersMetric(Score score, const char* name, const MultilabelOptions& options, double beta = 1);

 private:
  struct Counts {
    at::Tensor right, predicted, actual, all;  // yes and right, yes in outputs, yes in targets, targets
  };
  explicit AnswersMetric(Plan plan);
  at::Tensor score(const Counts& counts) const;

  Plan plan_;
  std::shared_ptr<ProbabilitiesOf> probabilities_of_;
  Sum right_, predicted_, actual_, all_;  // [L]; binary: 0-d
};

// Share of the predicted yes that are right.
class COMPOSER_EXPORT BinaryPrecision final : public AnswersMetric {
 public:
  explicit BinaryPrecision(BinaryOptions options = {});
  explicit BinaryPrecision(EmptyOptions) : BinaryPrecision() {}
  ~BinaryPrecision() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<BinaryPrecision>(options_); }
  StateDict local_hparams() const override;

 private:
  BinaryOptions options_;
};

// Share of the yes among targets that were predicted.
class COMPOSER_EXPORT BinaryRecall final : public AnswersMetric {
 public:
  explicit BinaryRecall(BinaryOptions options = {});
  explicit BinaryRecall(EmptyOptions) : BinaryRecall() {}
  ~BinaryRecall() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<BinaryRecall>(options_); }
  StateDict local_hparams() const override;

 private:
  BinaryOptions options_;
};

// Share of the no among targets that were predicted.
class COMPOSER_EXPORT BinarySpecificity final : public AnswersMetric {
 public:
  explicit BinarySpecificity(BinaryOptions options = {});
  explicit BinarySpecificity(EmptyOptions) : BinarySpecificity() {}
  ~BinarySpecificity() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<BinarySpecificity>(options_); }
  StateDict local_hparams() const override;

 private:
  BinaryOptions options_;
};

// Weighted harmonic mean of precision and recall.
class COMPOSER_EXPORT BinaryFBetaScore final : public AnswersMetric {
 public:
  explicit BinaryFBetaScore(BinaryFBetaOptions options = {});
  explicit BinaryFBetaScore(EmptyOptions) : BinaryFBetaScore() {}
  ~BinaryFBetaScore() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<BinaryFBetaScore>(options_); }
  StateDict local_hparams() const override;

 private:
  BinaryFBetaOptions options_;
};

class COMPOSER_EXPORT MultilabelAccuracy final : public AnswersMetric {
 public:
  explicit MultilabelAccuracy(MultilabelOptions options);
  ~MultilabelAccuracy() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MultilabelAccuracy>(options_); }
  StateDict local_hparams() const override;

 private:
  MultilabelOptions options_;
};

class COMPOSER_EXPORT MultilabelPrecision final : public AnswersMetric {
 public:
  explicit MultilabelPrecision(MultilabelOptions options);
  ~MultilabelPrecision() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MultilabelPrecision>(options_); }
  StateDict local_hparams() const override;

 private:
  MultilabelOptions options_;
};

class COMPOSER_EXPORT MultilabelRecall final : public AnswersMetric {
 public:
  explicit MultilabelRecall(MultilabelOptions options);
  ~MultilabelRecall() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MultilabelRecall>(options_); }
  StateDict local_hparams() const override;

 private:
  MultilabelOptions options_;
};

class COMPOSER_EXPORT MultilabelSpecificity final : public AnswersMetric {
 public:
  explicit MultilabelSpecificity(MultilabelOptions options);
  ~MultilabelSpecificity() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MultilabelSpecificity>(options_); }
  StateDict local_hparams() const override;

 private:
  MultilabelOptions options_;
};

class COMPOSER_EXPORT MultilabelFBetaScore final : public AnswersMetric {
 public:
  explicit MultilabelFBetaScore(MultilabelFBetaOptions options);
  ~MultilabelFBetaScore() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MultilabelFBetaScore>(options_); }
  StateDict local_hparams() const override;

 private:
  MultilabelFBetaOptions options_;
};

struct MultilabelExactMatchOptions {
  double threshold = 0.5;                         // probability above which the answer is yes, in [0, 1]
  bool logits = false;                            // the outputs are always logits, not probabilities
  std::optional<std::int64_t> ignore_index = {};  // targets of this value do not count; unset: all count
  std::string name = "MultilabelExactMatch";      // what the value is logged as
  std::string output = {}, target = "target";     // names of tensors of one shape; an empty output: the only one
};

// Share of samples all of whose labels are right. Outputs and targets (0 or 1) are [N, L, ...]; each place of the last
// dimensions is a sample. One whose labels are all ignored does not count.
class COMPOSER_EXPORT MultilabelExactMatch final : public Ratio {
 public:
  explicit MultilabelExactMatch(MultilabelExactMatchOptions options = {});
  explicit MultilabelExactMatch(EmptyOptions) : MultilabelExactMatch() {}
  ~MultilabelExactMatch() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MultilabelExactMatch>(options_); }
  StateDict local_hparams() const override;

 private:
  MultilabelExactMatchOptions options_;
  std::shared_ptr<ProbabilitiesOf> probabilities_of_;
};

}  // namespace composer::metrics
