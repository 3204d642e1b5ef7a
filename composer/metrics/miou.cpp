#include "composer/metrics/miou.h"

#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/entry.h"
#include "composer/metrics/names.h"
#include "composer/metrics/predicted_classes.h"

namespace composer::metrics {

namespace {

std::vector<Option<MIoUOptions>> miou_options() {
  using O = MIoUOptions;
  return with_names<O>(option("num_classes", &O::num_classes).example("4").at_least(1),
                       option("ignore_index", &O::ignore_index));
}

}  // namespace

MIoU::MIoU(MIoUOptions options) : options_(checked("MIoU", std::move(options), miou_options())) {}
MIoU::~MIoU() = default;

void MIoU::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const std::int64_t classes = options_.num_classes;
  const auto [target, predicted, valid] = predicted_classes(name(), pick(outputs, options_.output),
                                                            batch.at(options_.target), classes, options_.ignore_index);
  intersection_.add(count_by_class(target, valid.logical_and(predicted.eq(target)), classes));
  predicted_.add(count_by_class(predicted, valid, classes));
  actual_.add(count_by_class(target, valid, classes));
}

at::Tensor MIoU::compute() const {
  const at::Tensor intersection = intersection_.value();
  const at::Tensor together = predicted_.value() + actual_.value() - intersection;
  const at::Tensor occurs = together.gt(0).to(at::kDouble);
  return (intersection / together.clamp_min(1) * occurs).sum() / occurs.sum() * 100;
}

void MIoU::reset() {
  intersection_.reset();
  predicted_.reset();
  actual_.reset();
}

void MIoU::visit_sums(const VisitSum& visit) {
  visit("intersection", intersection_.tensor());
  visit("predicted", predicted_.tensor());
  visit("actual", actual_.tensor());
}

StateDict MIoU::local_hparams() const { return describe(options_, miou_options()); }

namespace entries {

Entry<Metrics> miou() {
  return entry<MIoU>("miou", "Intersection over union of segmentation maps, as the mean over classes", miou_options());
}

}  // namespace entries
}  // namespace composer::metrics
