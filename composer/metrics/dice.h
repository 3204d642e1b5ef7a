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
  std::int64_t num_classes = 0;                // required, >= 2; class 0 is the background, which is left out
  std::int64_t ignore_index = -1;              // pixels with this target do not count
  bool mean_of_batches = false;                // each batch has the same weight, whatever its size, as in Composer
  std::string name = "Dice";                   // what the value is logged as
  std::string output = {}, target = "target";  // names of tensors; an empty output: the only one
};

// Dice coefficient in percent: twice the intersection of predicted and target pixels of a class, divided by the sum of
// both. The mean is over the classes that occur, without the background. Logits [N, C, ...], targets [N, ...].
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
