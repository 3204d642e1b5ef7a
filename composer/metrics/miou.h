#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/sum.h"

namespace composer::metrics {

struct MIoUOptions {
  std::int64_t num_classes = 0;                // required
  std::int64_t ignore_index = -1;              // pixels with this target do not count
  std::string name = "MIoU";                   // what the value is logged as
  std::string output = {}, target = "target";  // names of tensors; an empty output: the only one
};

// Intersection over union of predicted and target pixels of a class, in percent, as the mean over the classes that
// occur. Logits [N, C, ...], targets [N, ...].
class COMPOSER_EXPORT MIoU final : public Metric {
 public:
  explicit MIoU(MIoUOptions options);
  ~MIoU() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override;
  void reset() override;
  void visit_sums(const VisitSum& visit) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<MIoU>(options_); }
  StateDict local_hparams() const override;

 private:
  MIoUOptions options_;
  Sum intersection_, predicted_, actual_;  // [num_classes]
};

}  // namespace composer::metrics
