#include "composer/metrics/dice.h"

#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>

#include "composer/core/entry.h"
#include "composer/metrics/names.h"
#include "composer/metrics/predicted_classes.h"

namespace composer::metrics {

namespace {

std::vector<Option<DiceOptions>> dice_options() {
  using O = DiceOptions;
  return with_names<O>(option("num_classes", &O::num_classes).example("4").at_least(2),
                       option("ignore_index", &O::ignore_index), option("mean_of_batches", &O::mean_of_batches));
}

}  // namespace

Dice::Dice(DiceOptions options) : options_(checked("Dice", std::move(options), dice_options())) {}
Dice::~Dice() = default;

void Dice::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const std::int64_t classes = options_.num_classes;
  const auto [target, predicted, valid] = predicted_classes(name(), pick(outputs, options_.output),
                                                            batch.at(options_.target), classes, options_.ignore_index);
  const auto count = [&](const at::Tensor& of, const at::Tensor& where) {
    return count_by_class(of, where, classes).slice(0, 1);  // without the background
  };
  const at::Tensor twice = count(target, valid.logical_and(predicted.eq(target))) * 2,
                   both = count(predicted, valid) + count(target, valid);
  if (!options_.mean_of_batches) {
    over_.add(twice);
    under_.add(both);
    return;
  }
  over_.add((twice.to(at::kDouble) / both).nan_to_num_(1));  // Composer gives 1 for a class that is not in the batch
  under_.add(at::ones_like(both));
}

at::Tensor Dice::compute() const {
  const at::Tensor over = over_.value(), under = under_.value();
  const at::Tensor occurs = under.gt(0).to(at::kDouble);
  return (over / under.clamp_min(1) * occurs).sum() / occurs.sum() * 100;
}

StateDict Dice::local_hparams() const { return describe(options_, dice_options()); }

namespace entries {

Entry<Metrics> dice() {
  return entry<Dice>("dice", "Dice's coefficient of segmentation maps, as the mean over classes", dice_options());
}

}  // namespace entries
}  // namespace composer::metrics
