#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/sum.h"

namespace composer::metrics {

enum class Average : std::uint8_t {
  MICRO,    // over samples
  MACRO,    // over the classes in targets or predictions
  WEIGHTED  // over classes, weighted by how often each is the target
};

struct MulticlassOptions {
  std::int64_t num_classes = 0;  // required unless the average is MICRO
  std::int64_t top_k = 1;        // a prediction is right if the target is among the k highest
  Average average = Average::MICRO;
  std::optional<std::int64_t> ignore_index = {};  // targets of this class do not count; unset: all count
  std::string name = {};                          // the class's name if empty
  std::string output, target = "target";          // names of tensors; an empty output: the only one
};

// Counts how logits (or probabilities) [N, C, ...] agree with targets. Targets are classes [N, ...], or probabilities
// [N, C, ...], of which the highest is the class; if no probability is above 0, the target does not count. The metrics
// below differ only in what compute() makes of the counts. update() throws DataError for other shapes, and (on the
// host) for classes that are out of range and not ignore_index.
class COMPOSER_EXPORT MulticlassMetric : public Metric {
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
  // The value for each class, [num_classes]; 0 for a class that never occurs. Throws ConfigError if the average is
  // MICRO.
  at::Tensor per_class() const;

 protected:
  // Computes the value from float64 counts of equal shape: right predictions, predictions of the class, targets of the
  // class.
  virtual at::Tensor score(const at::Tensor& right, const at::Tensor& predicted, const at::Tensor& actual) const = 0;
  // The classes over which MACRO averages: those in targets or predictions; with top_k > 1 those in targets, as in
  // torchmetrics.
  virtual at::Tensor occurring(const at::Tensor& predicted, const at::Tensor& actual) const;
  const MulticlassOptions& options() const { return options_; }

 private:
  // The classes of targets. Throws DataError if they do not fit the logits.
  at::Tensor classes_of(const at::Tensor& logits, const at::Tensor& target) const;

  MulticlassOptions options_;
  Sum right_, predicted_, actual_;  // MICRO: sums over all classes, without predicted_; otherwise [num_classes]
};

// Share of targets that were predicted correctly.
class COMPOSER_EXPORT MulticlassAccuracy final : public MulticlassMetric {
 public:
  explicit MulticlassAccuracy(MulticlassOptions options = {});
  explicit MulticlassAccuracy(EmptyOptions) : MulticlassAccuracy() {}
  ~MulticlassAccuracy() override;
  std::shared_ptr<Metric> fresh() const override;

 private:
  at::Tensor score(const at::Tensor& right, const at::Tensor& predicted, const at::Tensor& actual) const override;
};

// The same values as MulticlassAccuracy, under another name.
class COMPOSER_EXPORT MulticlassRecall final : public MulticlassMetric {
 public:
  explicit MulticlassRecall(MulticlassOptions options = {});
  explicit MulticlassRecall(EmptyOptions) : MulticlassRecall() {}
  ~MulticlassRecall() override;
  std::shared_ptr<Metric> fresh() const override;

 private:
  at::Tensor score(const at::Tensor& right, const at::Tensor& predicted, const at::Tensor& actual) const override;
};

// Share of predictions that were correct.
class COMPOSER_EXPORT MulticlassPrecision final : public MulticlassMetric {
 public:
  explicit MulticlassPrecision(MulticlassOptions options = {});
  explicit MulticlassPrecision(EmptyOptions) : MulticlassPrecision() {}
  ~MulticlassPrecision() override;
  std::shared_ptr<Metric> fresh() const override;

 private:
  at::Tensor score(const at::Tensor& right, const at::Tensor& predicted, const at::Tensor& actual) const override;
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
  at::Tensor score(const at::Tensor& right, const at::Tensor& predicted, const at::Tensor& actual) const override;
};

}  // namespace composer::metrics
