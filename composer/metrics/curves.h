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
#include "composer/metrics/sum.h"

namespace composer::metrics {

class ProbabilitiesOf;

struct BinaryCurveOptions {
  std::int64_t thresholds = 0;  // 0: exact, keeps all scores; otherwise >= 2: number of thresholds from 0 to 1
  bool logits = false;          // the outputs are always logits, not probabilities
  std::optional<std::int64_t> ignore_index = {};  // targets of this value do not count; unset: all count
  std::string name = {};                          // what the value is logged as; empty: the name of the class
  std::string output = {}, target = "target";     // names of tensors; an empty output: the only one
};

struct MulticlassCurveOptions {
  std::int64_t num_classes = 0;      // required, >= 2
  Average average = Average::MACRO;  // MACRO or WEIGHTED, over classes
  std::int64_t thresholds = 0;       // 0: exact, keeps all scores; otherwise >= 2: number of thresholds from 0 to 1
  bool logits = false;               // the outputs are always logits, not probabilities
  std::optional<std::int64_t> ignore_index = {};  // targets of this class do not count; unset: all count
  bool per_class = false;                         // also reports a value for each class
  std::vector<std::string> class_names = {};      // names of these values; empty: the numbers of the classes
  std::string name = {};                          // what the value is logged as; empty: the name of the class
  std::string output = {}, target = "target";     // names of tensors; an empty output: the only one
};

struct MultilabelCurveOptions {
  std::int64_t num_labels = 0;       // required, >= 2
  Average average = Average::MACRO;  // over labels; MICRO: over all answers together
  std::int64_t thresholds = 0;       // 0: exact, keeps all scores; otherwise >= 2: number of thresholds from 0 to 1
  bool logits = false;               // the outputs are always logits, not probabilities
  std::optional<std::int64_t> ignore_index = {};  // targets of this value do not count; unset: all count
  bool per_class = false;                         // also reports a value for each label
  std::vector<std::string> class_names = {};      // names of these values; empty: the numbers of the labels
  std::string name = {};                          // what the value is logged as; empty: the name of the class
  std::string output = {}, target = "target";     // names of tensors of one shape; an empty output: the only one
};

// The area under a curve over all thresholds of the scores. Exact, it keeps all scores, 8 bytes for each, and those of
// all ranks are gathered when it is computed; with `thresholds` it keeps counts. Where outputs are outside of 0 to 1
// they are taken for logits, as in torchmetrics. Equal scores are one point of the curve.
class COMPOSER_EXPORT CurveMetric : public Metric, public HasSeveralValues, public KeepsRows {
 public:
  ~CurveMetric() override;
  std::string name() const override { return plan_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override;
  std::vector<std::string> value_names() const override;
  at::Tensor compute_values() const override;
  void reset() override;
  void visit_sums(const VisitSum& visit) override;
  void visit_rows(const VisitRows& visit) override;

 protected:
  enum class Area : std::uint8_t { ROC, PRECISION_RECALL };
  enum class Task : std::uint8_t { BINARY, MULTICLASS, MULTILABEL };
  // What all options come to.
  struct Plan {
    Area area;
    Task task;
    std::int64_t columns = 1;  // of scores: classes or labels
    Average average = Average::MACRO;
    std::int64_t thresholds = 0;
    bool logits = false;
    std::optional<std::int64_t> ignore_index = {};
    bool per_class = false;
    std::vector<std::string> class_names = {};
    std::string name, output, target;
  };
  CurveMetric(Area area, const char* name, const BinaryCurveOptions& options);
  CurveMetric(Area area, const char* name, const MulticlassCurveOptions& options);
  CurveMetric(Area area, const char* name, const MultilabelCurveOptions& options);

 private:
  // Counts above each threshold, from the highest to the lowest: [columns, points], and all: [columns].
  struct Counts {
    at::Tensor right, wrong, positives, negatives;
  };
  struct Scores {
    at::Tensor scores, answers;  // [N, columns] and float64: 1, 0, or -1 for one that does not count
  };
  explicit CurveMetric(Plan plan);
  template <class Options>
  static Plan plan_of(Area area, Task task, std::int64_t columns, const char* name, const Options& options);
  Scores scores_of(const Outputs& outputs, const Batch& batch);
  void count(const Scores& scores);
  Counts counts_of(bool pooled) const;
  at::Tensor areas(const Counts& counts) const;  // of each column
  at::Tensor is_without_area(const Counts& counts) const;

  Plan plan_;
  std::shared_ptr<ProbabilitiesOf> probabilities_of_;
  std::vector<at::Tensor> rows_;  // exact: [N, 2 * columns]; for MULTICLASS [N, columns + 1]
  // Otherwise: how many have so many thresholds below them, [columns, thresholds + 1], and are NaN, [columns].
  Sum positives_, all_, undefined_;
};

// Area under the ROC curve: how probable it is that a yes has a higher score than a no. 0 if there are none of either,
// as in torchmetrics. Outputs and targets (0 or 1) of one shape.
class COMPOSER_EXPORT BinaryAUROC final : public CurveMetric {
 public:
  explicit BinaryAUROC(BinaryCurveOptions options = {});
  explicit BinaryAUROC(EmptyOptions) : BinaryAUROC() {}
  ~BinaryAUROC() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<BinaryAUROC>(options_); }
  StateDict local_hparams() const override;

 private:
  BinaryCurveOptions options_;
};

// Each class against all others: outputs [N, C, ...], targets (classes) [N, ...]. Logits become probabilities over the
// classes.
class COMPOSER_EXPORT MulticlassAUROC final : public CurveMetric {
 public:
  explicit MulticlassAUROC(MulticlassCurveOptions options);
  ~MulticlassAUROC() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MulticlassAUROC>(options_); }
  StateDict local_hparams() const override;

 private:
  MulticlassCurveOptions options_;
};

// Each label by itself: outputs and targets (0 or 1) [N, L, ...].
class COMPOSER_EXPORT MultilabelAUROC final : public CurveMetric {
 public:
  explicit MultilabelAUROC(MultilabelCurveOptions options);
  ~MultilabelAUROC() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MultilabelAUROC>(options_); }
  StateDict local_hparams() const override;

 private:
  MultilabelCurveOptions options_;
};

// Mean of the precisions at all thresholds, weighted by the recall that each adds; 0 if no target is a yes.
class COMPOSER_EXPORT BinaryAveragePrecision final : public CurveMetric {
 public:
  explicit BinaryAveragePrecision(BinaryCurveOptions options = {});
  explicit BinaryAveragePrecision(EmptyOptions) : BinaryAveragePrecision() {}
  ~BinaryAveragePrecision() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<BinaryAveragePrecision>(options_); }
  StateDict local_hparams() const override;

 private:
  BinaryCurveOptions options_;
};

class COMPOSER_EXPORT MulticlassAveragePrecision final : public CurveMetric {
 public:
  explicit MulticlassAveragePrecision(MulticlassCurveOptions options);
  ~MulticlassAveragePrecision() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MulticlassAveragePrecision>(options_); }
  StateDict local_hparams() const override;

 private:
  MulticlassCurveOptions options_;
};

class COMPOSER_EXPORT MultilabelAveragePrecision final : public CurveMetric {
 public:
  explicit MultilabelAveragePrecision(MultilabelCurveOptions options);
  ~MultilabelAveragePrecision() override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MultilabelAveragePrecision>(options_); }
  StateDict local_hparams() const override;

 private:
  MultilabelCurveOptions options_;
};

}  // namespace composer::metrics
