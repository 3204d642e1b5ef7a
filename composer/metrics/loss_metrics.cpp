#include "composer/metrics/loss_metrics.h"

#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
#include "composer/metrics/predicted_classes.h"
#include "composer/util/loss.h"

namespace composer::metrics {
CrossEntropy::CrossEntropy(CrossEntropyOptions options) : options_(std::move(options)) {
  if (options_.name.empty()) throw ConfigError("CrossEntropy: name must not be empty");
}
CrossEntropy::~CrossEntropy() = default;

void CrossEntropy::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = at_least_float(pick(outputs, options_.output));
  const at::Tensor& target = batch.at(options_.target);
  const std::int64_t ignored = options_.ignore_index;
  const auto losses_of = [&](Reduction reduction) {
    return naming(
        name(), [&] { return soft_cross_entropy(logits, target, {.ignore_index = ignored, .reduction = reduction}); });
  };
  const bool classes = naming(name(), [&] { return target_kind(logits, target); }) == TargetKind::INDICES;
  const at::Tensor count = classes ? not_ignored(target, ignored).sum() : target.sum(at::kDouble);
  if (options_.mean_of_batches) {
    const at::Tensor mean = losses_of(Reduction::MEAN);
    over_.add(mean.masked_fill(count.eq(0), 0));
    under_.add(count.ne(0).to(at::kLong));
    return;
  }
  const at::Tensor losses = losses_of(Reduction::NONE);
  over_.add(losses.sum(at::kDouble));
  under_.add(count);
}

LossMetric::LossMetric(LossMetricOptions options) : options_(std::move(options)) {
  if (!options_.loss_function) throw ConfigError(options_.name, ": loss_function is required");
  if (options_.name.empty()) throw ConfigError("LossMetric: name must not be empty");
}
LossMetric::~LossMetric() = default;

void LossMetric::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor output = at_least_float(pick(outputs, options_.output));
  const at::Tensor target = at_least_float(batch.at(options_.target));
  const at::Tensor loss = options_.loss_function(output, target);
  if (loss.dim() != 0) throw DataError(name(), ": loss_function must give a 0-d mean, got ", loss.sizes());
  if (options_.loss_weight) {
    const LossWeight weight = options_.loss_weight(batch.at(options_.target));
    const at::Tensor mean = loss.to(at::kDouble), count = weight.on(output.device());
    over_.add(options_.mean_of_batches ? weight.value_or_zero(mean) : weight.times(mean));
    under_.add(options_.mean_of_batches ? count.ne(0).to(at::kDouble) : count);
    return;
  }
  const std::int64_t weight = options_.mean_of_batches ? 1 : output.size(0);
  over_.add(loss.to(at::kDouble) * weight);
  under_.add(weight, output.device());
}

namespace {

std::vector<Option<CrossEntropyOptions>> cross_entropy_options() {
  using O = CrossEntropyOptions;
  return with_names<O>(option("ignore_index", &O::ignore_index), option("mean_of_batches", &O::mean_of_batches));
}

}  // namespace

StateDict CrossEntropy::local_hparams() const { return describe(options_, cross_entropy_options()); }

StateDict LossMetric::local_hparams() const {
  using O = LossMetricOptions;
  return describe(options_, with_names<O>(part("loss_function", &O::loss_function, "a function"),
                                          option("mean_of_batches", &O::mean_of_batches),
                                          part("loss_weight", &O::loss_weight, "a function")));
}

namespace entries {

Entry<Metrics> cross_entropy() {
  return entry<CrossEntropy>("cross_entropy", "Mean cross entropy of the targets", cross_entropy_options());
}

}  // namespace entries
}  // namespace composer::metrics
