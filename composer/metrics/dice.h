#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/ratio.h"

namespace composer::metrics {

struct DiceOptions {
  std::int64_t num_classes = 0;    // required, >= 2; class 0 is the background, which has no figure of its own
  std::int64_t ignore_index = -1;  // pixels with this target count nothing
  bool mean_of_batches = false;    // each batch weighs the same, whatever its size, as in Composer
  std::string name = "Dice";
  std::string output, target = "target";  // names of tensors; an empty output is the only one
};

// Twice the intersection of the pixels predicted as a class and those that are of it, divided by the sum of both, in
// percent, as the mean over the classes that occur but the background. Logits [N, C, ...], targets [N, ...].
class COMPOSER_EXPORT Dice final : public Ratio {
 public:
  explicit Dice(DiceOptions options);
  ~Dice() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<Dice>(options_); }
  StateDict local_hparams() const override;

 private:
  DiceOptions options_;
};

}  // namespace composer::metrics
