#include "composer/metrics/loss_metrics.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
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
  if (options_.mean_of_batches) {
    over_.add(soft_cross_entropy(logits, target, {.ignore_index = ignored}));
    under_.add(1, logits.device());
    return;
  }
  const at::Tensor losses = soft_cross_entropy(logits, target, {.ignore_index = ignored, .reduction = Reduction::NONE});
  over_.add(losses.sum(at::kDouble));
  const bool classes = target_kind(logits, target) == TargetKind::INDICES;
  under_.add(classes ? target.ne(ignored).sum() : target.sum(at::kDouble));
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
  if (options_.loss_weight && !options_.mean_of_batches) {
    const LossWeight weight = options_.loss_weight(batch.at(options_.target));
    over_.add(weight.times(loss.to(at::kDouble)));
    under_.add(weight.on(output.device()));
    return;
  }
  const std::int64_t weight = options_.mean_of_batches ? 1 : output.size(0);
  over_.add(loss.to(at::kDouble) * weight);
  under_.add(weight, output.device());
}

namespace entries {

Entry<Metrics> cross_entropy() {
  using O = CrossEntropyOptions;
  return entry<CrossEntropy, O>("cross_entropy", "Mean cross entropy of the targets",
                                with_names<O>({option("ignore_index", &O::ignore_index).refuses({"x"}),
                                               option("mean_of_batches", &O::mean_of_batches).refuses({"1"})}));
}

}  // namespace entries
}  // namespace composer::metrics
