#pragma once
#include <memory>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/ratio.h"

namespace composer::metrics {

class ProbabilitiesOf;

struct BinaryAccuracyOptions {
  double threshold = 0.5;                      // threshold of the probability of class 1, in [0, 1]
  bool logits = false;                         // the outputs are always logits, not probabilities
  std::string name = "BinaryAccuracy";         // what the value is logged as
  std::string output = {}, target = "target";  // names of tensors of one shape; an empty output: the only one
};

// Accuracy of binary predictions. Outputs and targets (0 or 1) have the same shape. If any output of a batch is outside
// of [0, 1], the batch's outputs are taken for logits, as in torchmetrics; on the host, the first time gives a warning.
class COMPOSER_EXPORT BinaryAccuracy final : public Ratio {
 public:
  explicit BinaryAccuracy(BinaryAccuracyOptions options = {});
  explicit BinaryAccuracy(EmptyOptions) : BinaryAccuracy() {}
  ~BinaryAccuracy() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<BinaryAccuracy>(options_); }
  StateDict local_hparams() const override;

 private:
  BinaryAccuracyOptions options_;
  std::shared_ptr<ProbabilitiesOf> probabilities_of_;
};

struct BinaryF1ScoreOptions {
  std::string name = "BinaryF1Score";          // what the value is logged as
  std::string output = {}, target = "target";  // names of tensors; an empty output: the only one
};

// Harmonic mean of precision and recall of class 1, from logits [N, 2] and targets [N]. NaN if class 1 occurs in
// neither targets nor predictions. Throws DataError for other shapes, and (on the host) for targets other than 0 and 1.
class COMPOSER_EXPORT BinaryF1Score final : public Ratio {
 public:
  explicit BinaryF1Score(BinaryF1ScoreOptions options = {});
  explicit BinaryF1Score(EmptyOptions) : BinaryF1Score() {}
  ~BinaryF1Score() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<BinaryF1Score>(options_); }
  StateDict local_hparams() const override;

 private:
  BinaryF1ScoreOptions options_;
};

}  // namespace composer::metrics
