#include "composer/metrics/loss_metrics.h"

#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
#include "composer/util/loss.h"

namespace composer::metrics {
namespace {

std::tuple<at::Tensor, at::Tensor> sum_and_count(const at::Tensor& logits, const at::Tensor& classes,
                                                 std::int64_t ignore) {
  // nll_loss counts what it did not ignore; as [N, C] or [N, C, 1, L] it takes any number of dimensions
  const at::Tensor log_p = at::log_softmax(logits, 1);
  const at::Tensor target = classes.to(at::kLong);
  if (logits.dim() == 2) return at::nll_loss_forward(log_p, target, {}, at::Reduction::Sum, ignore);
  return at::nll_loss2d_forward(log_p.flatten(2).unsqueeze(2), target.flatten(1).unsqueeze(1), {}, at::Reduction::Sum,
                                ignore);
}

}  // namespace

CrossEntropy::CrossEntropy(CrossEntropyOptions options) : options_(std::move(options)) {
  if (options_.name.empty()) throw ConfigError("CrossEntropy: name must not be empty");
}
CrossEntropy::~CrossEntropy() = default;

void CrossEntropy::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor& logits = pick(outputs, options_.output);
  const at::Tensor& target = batch.at(options_.target);
  if (options_.mean_of_batches) {
    over_.add(soft_cross_entropy(logits, target, {.ignore_index = options_.ignore_index}));
    under_.add(1, logits.device());
  } else if (target_kind(logits, target) == TargetKind::PROBABILITIES) {
    over_.add(soft_cross_entropy(logits, target, {.reduction = Reduction::SUM}));
    under_.add(target.sum());
  } else {
    const auto [sum, count] = sum_and_count(logits, target, options_.ignore_index);
    over_.add(sum);
    under_.add(count);
  }
}

LossMetric::LossMetric(LossMetricOptions options) : options_(std::move(options)) {
  if (!options_.loss_function) throw ConfigError(options_.name, ": loss_function is required");
  if (options_.name.empty()) throw ConfigError("LossMetric: name must not be empty");
}
LossMetric::~LossMetric() = default;

void LossMetric::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor& output = pick(outputs, options_.output);
  const at::Tensor& target = batch.at(options_.target);
  const at::Tensor loss = options_.loss_function(output, target);
  if (loss.dim() != 0) throw DataError(name(), ": loss_function must give a 0-d mean, got ", loss.sizes());
  const std::int64_t weight = options_.mean_of_batches ? 1 : output.size(0);
  over_.add(loss * weight);
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
