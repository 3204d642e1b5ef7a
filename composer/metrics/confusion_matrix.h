#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/metric_parts.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/sum.h"

namespace composer::metrics {

enum class Normalize : std::uint8_t {
  NONE,  // numbers of samples
  TRUE,  // shares of the targets of a class: each row adds up to 1
  PRED,  // shares of the predictions of a class: each column adds up to 1
  ALL    // shares of all samples
};

struct ConfusionMatrixOptions {
  std::int64_t num_classes = 0;                   // required, >= 2
  std::optional<std::int64_t> ignore_index = {};  // targets of this class do not count; unset: all count
  Normalize normalize = Normalize::NONE;  // of the table and matrix(): NONE counts, TRUE and PRED shares of a target or
                                          // predicted class, ALL shares of all
  std::vector<std::string> class_names = {};   // for the table; empty: the numbers of the classes
  std::string name = "ConfusionMatrix";        // what the value is logged as
  std::string output = {}, target = "target";  // names of tensors; an empty output: the only one
};

// How often targets of each class were predicted as each class, from logits [N, C, ...] and classes [N, ...]. The
// metric's number is the share of right predictions. Evaluations log metrics/<label>/ConfusionMatrix/table (up to 128
// classes), and .../image: a row of pixels for each target class, from white (never) to blue (always).
class COMPOSER_EXPORT ConfusionMatrix final : public Metric, public LogsContent {
 public:
  explicit ConfusionMatrix(ConfusionMatrixOptions options);
  ~ConfusionMatrix() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override;
  // [num_classes, num_classes] in float64: rows are targets, columns predictions. Zero if nothing was added.
  at::Tensor matrix() const;
  std::map<std::string, LogContent> content() const override;
  void reset() override { counts_.reset(); }
  void visit_sums(const VisitSum& visit) override { visit("counts", counts_.tensor()); }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<ConfusionMatrix>(options_); }
  StateDict local_hparams() const override;

 private:
  at::Tensor normalized(Normalize how) const;

  ConfusionMatrixOptions options_;
  Sum counts_;  // [num_classes, num_classes]
};

}  // namespace composer::metrics
