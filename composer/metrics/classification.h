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
#include "composer/metrics/ratio.h"
#include "composer/metrics/sum.h"

namespace composer::metrics {

enum class Average : std::uint8_t {
  MICRO,    // over samples
  MACRO,    // over the classes in targets or predictions
  WEIGHTED  // over classes, weighted by how often each is the target
};

struct MulticlassOptions {
  std::int64_t num_classes = 0;      // required by specificity and per_class, and unless the average is MICRO
  std::int64_t top_k = 1;            // a prediction is right if the target is among the k highest
  Average average = Average::MICRO;  // MICRO, MACRO or WEIGHTED
  std::optional<std::int64_t> ignore_index = {};  // targets of this class do not count; unset: all count
  bool per_class = false;                         // also reports a value for each class; needs num_classes
  std::vector<std::string> class_names = {};      // names of these values; empty: the numbers of the classes
  std::string name = {};                          // what the value is logged as; empty: the name of the class
  std::string output = {}, target = "target";     // names of tensors; an empty output: the only one
};

// Counts how logits (or probabilities) [N, C, ...] agree with targets. Targets are classes [N, ...], or probabilities
// [N, C, ...], of which the highest is the class; if no probability is above 0, the target does not count. The metrics
// below differ only in what compute() makes of the counts. update() throws DataError for other shapes, and (on the
// host) for classes that are out of range and not ignore_index.
class COMPOSER_EXPORT MulticlassMetric : public Metric, public HasSeveralValues {
 public:
  MulticlassMetric(std::string default_name, MulticlassOptions options);
  ~MulticlassMetric() override;

  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override;
  void reset() override;
  void visit_sums(const VisitSum& visit) override;
  StateDict local_hparams() const override;
  std::vector<std::string> value_names() const override;
  at::Tensor compute_values() const override;
  // The value for each class, [num_classes]; 0 for a class that never occurs. Throws ConfigError if the average is
  // MICRO, unless the option `per_class` is set.
  at::Tensor per_class() const;

 protected:
  // Float64 counts of each class: right predictions, predictions of the class, targets of the class; and of all
  // targets.
  struct Counts {
    at::Tensor right, predicted, actual, total;
  };
  virtual at::Tensor score(const Counts& counts) const = 0;
  // The value over samples, from the number of right predictions and of targets.
  virtual at::Tensor micro(const at::Tensor& right, const at::Tensor& total) const;
  // The classes over which MACRO averages: those in targets or predictions; with top_k > 1 those in targets, as in
  // torchmetrics.
  virtual at::Tensor occurring(const at::Tensor& predicted, const at::Tensor& actual) const;
  const MulticlassOptions& options() const { return options_; }

 private:
  // The classes of targets. Throws DataError if they do not fit the logits.
  at::Tensor classes_of(const at::Tensor& logits, const at::Tensor& target) const;

  bool counts_classes() const { return options_.average != Average::MICRO || options_.per_class; }

  MulticlassOptions options_;
  Sum right_, predicted_, actual_;  // [num_classes] if classes are counted; otherwise of all, without predicted_
};

// Share of targets that were predicted correctly.
class COMPOSER_EXPORT MulticlassAccuracy final : public MulticlassMetric {
 public:
  explicit MulticlassAccuracy(MulticlassOptions options = {});
  explicit MulticlassAccuracy(EmptyOptions) : MulticlassAccuracy() {}
  ~MulticlassAccuracy() override;
  std::shared_ptr<Metric> fresh() const override;

 private:
  at::Tensor score(const Counts& counts) const override;
};

// The same values as MulticlassAccuracy, under another name.
class COMPOSER_EXPORT MulticlassRecall final : public MulticlassMetric {
 public:
  explicit MulticlassRecall(MulticlassOptions options = {});
  explicit MulticlassRecall(EmptyOptions) : MulticlassRecall() {}
  ~MulticlassRecall() override;
  std::shared_ptr<Metric> fresh() const override;

 private:
  at::Tensor score(const Counts& counts) const override;
};

// Share of predictions that were correct.
class COMPOSER_EXPORT MulticlassPrecision final : public MulticlassMetric {
 public:
  explicit MulticlassPrecision(MulticlassOptions options = {});
  explicit MulticlassPrecision(EmptyOptions) : MulticlassPrecision() {}
  ~MulticlassPrecision() override;
  std::shared_ptr<Metric> fresh() const override;

 private:
  at::Tensor score(const Counts& counts) const override;
};

// Harmonic mean of precision and recall.
class COMPOSER_EXPORT MulticlassF1Score final : public MulticlassMetric {
 public:
  explicit MulticlassF1Score(MulticlassOptions options = {});
  explicit MulticlassF1Score(EmptyOptions) : MulticlassF1Score() {}
  ~MulticlassF1Score() override;
  std::shared_ptr<Metric> fresh() const override;

 private:
  // The same classes for any top_k.
  at::Tensor occurring(const at::Tensor& predicted, const at::Tensor& actual) const override;
  at::Tensor score(const Counts& counts) const override;
};

// Share of the other classes' targets that were not predicted as the class. Needs num_classes.
class COMPOSER_EXPORT MulticlassSpecificity final : public MulticlassMetric {
 public:
  explicit MulticlassSpecificity(MulticlassOptions options);
  ~MulticlassSpecificity() override;
  std::shared_ptr<Metric> fresh() const override;

 private:
  at::Tensor occurring(const at::Tensor& predicted, const at::Tensor& actual) const override;
  at::Tensor score(const Counts& counts) const override;
  at::Tensor micro(const at::Tensor& right, const at::Tensor& total) const override;
};

struct MulticlassFBetaOptions {
  double beta = 1;  // > 0: recall counts beta times as much as precision
  // This and the following options are those of MulticlassOptions.
  std::int64_t num_classes = 0;
  std::int64_t top_k = 1;
  Average average = Average::MICRO;  // MICRO, MACRO or WEIGHTED
  std::optional<std::int64_t> ignore_index = {};
  bool per_class = false;
  std::vector<std::string> class_names = {};
  std::string name = {};
  std::string output = {}, target = "target";
};

// Weighted harmonic mean of precision and recall.
class COMPOSER_EXPORT MulticlassFBetaScore final : public MulticlassMetric {
 public:
  explicit MulticlassFBetaScore(MulticlassFBetaOptions options);
  ~MulticlassFBetaScore() override;
  std::shared_ptr<Metric> fresh() const override;
  StateDict local_hparams() const override;

 private:
  at::Tensor occurring(const at::Tensor& predicted, const at::Tensor& actual) const override;
  at::Tensor score(const Counts& counts) const override;

  MulticlassFBetaOptions given_;
};

struct TopKAccuracyOptions {
  std::vector<std::int64_t> k = {1, 5};           // each >= 1 and at most the number of classes
  std::optional<std::int64_t> ignore_index = {};  // targets of this class do not count; unset: all count
  std::string name = "TopKAccuracy";              // what the value is logged as
  std::string output = {}, target = "target";     // names of tensors; an empty output: the only one
};

// Share of targets that are among the k highest outputs, for several k at once: reported as TopKAccuracy/top1,
// TopKAccuracy/top5. The value called TopKAccuracy is that of the first k. Shapes are those of MulticlassAccuracy, with
// classes as targets.
class COMPOSER_EXPORT TopKAccuracy final : public Metric, public HasSeveralValues {
 public:
  explicit TopKAccuracy(TopKAccuracyOptions options = {});
  explicit TopKAccuracy(EmptyOptions) : TopKAccuracy() {}
  ~TopKAccuracy() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override;
  std::vector<std::string> value_names() const override;
  at::Tensor compute_values() const override;
  void reset() override;
  void visit_sums(const VisitSum& visit) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<TopKAccuracy>(options_); }
  StateDict local_hparams() const override;

 private:
  TopKAccuracyOptions options_;
  Sum right_, total_;  // right_: for each k
};

struct ExactMatchOptions {
  std::optional<std::int64_t> ignore_index = {};  // places with this target do not count; unset: all count
  std::string name = "ExactMatch";                // what the value is logged as
  std::string output = {}, target = "target";     // names of tensors; an empty output: the only one
};

// Share of samples all of whose places are right: outputs are logits [N, C, ...] or whole numbers [N, ...], targets
// [N, ...]. A sample whose places are all ignored does not count.
class COMPOSER_EXPORT ExactMatch final : public Ratio {
 public:
  explicit ExactMatch(ExactMatchOptions options = {});
  explicit ExactMatch(EmptyOptions) : ExactMatch() {}
  ~ExactMatch() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<ExactMatch>(options_); }
  StateDict local_hparams() const override;

 private:
  ExactMatchOptions options_;
};

}  // namespace composer::metrics
