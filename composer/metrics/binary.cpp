#include "composer/metrics/binary.h"

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

namespace {

std::vector<Option<BinaryAccuracyOptions>> binary_accuracy_options() {
  using O = BinaryAccuracyOptions;
  return with_names<O>(option("threshold", &O::threshold).from_to(0, 1), option("logits", &O::logits));
}

}  // namespace

BinaryAccuracy::BinaryAccuracy(BinaryAccuracyOptions options)
    : options_(checked("BinaryAccuracy", std::move(options), binary_accuracy_options())) {}
BinaryAccuracy::~BinaryAccuracy() = default;

void BinaryAccuracy::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor output = at_least_float(pick(outputs, options_.output));
  const at::Tensor& target = batch.at(options_.target);
  if (output.sizes() != target.sizes())
    throw DataError(name(), ": outputs and targets must have one shape, got ", output.sizes(), " and ", target.sizes());
  check_yes_or_no(name(), target, {}, "; of probabilities give target.gt(0.5)");
  if (!probabilities_of_) probabilities_of_ = std::make_shared<ProbabilitiesOf>();
  const auto sigmoid = [](const at::Tensor& logits) { return logits.sigmoid(); };
  const at::Tensor yes = (*probabilities_of_)(name(), output, options_.logits, sigmoid).gt(options_.threshold);
  over_.add(yes.eq(target.ne(0)).sum());
  under_.add(target.numel(), target.device());
}

BinaryF1Score::BinaryF1Score(BinaryF1ScoreOptions options) : options_(std::move(options)) {}
BinaryF1Score::~BinaryF1Score() = default;

void BinaryF1Score::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor& logits = pick(outputs, options_.output);
  const at::Tensor& target = batch.at(options_.target);
  if (logits.dim() != 2 || logits.size(1) != 2 || target.dim() != 1 || target.size(0) != logits.size(0))
    throw DataError(name(), ": expected outputs [N, 2] and targets [N], got ", logits.sizes(), " and ", target.sizes());
  const at::Tensor classes = whole_classes(name(), target);
  check_yes_or_no(name(), classes, {}, "");
  const at::Tensor predicted = logits.argmax(1).eq(1), actual = classes.eq(1);
  over_.add(predicted.logical_and(actual).sum() * 2);
  under_.add(predicted.sum() + actual.sum());
}

StateDict BinaryAccuracy::local_hparams() const { return describe(options_, binary_accuracy_options()); }
StateDict BinaryF1Score::local_hparams() const { return describe(options_, with_names<BinaryF1ScoreOptions>()); }

namespace entries {

Entry<Metrics> binary_accuracy() {
  return entry<BinaryAccuracy>("binary_accuracy", "Share of right answers to a yes-no question",
                               binary_accuracy_options());
}

Entry<Metrics> binary_f1_score() {
  return entry<BinaryF1Score, BinaryF1ScoreOptions>(
      "binary_f1_score", "Harmonic mean of precision and recall of class 1", with_names<BinaryF1ScoreOptions>());
}

}  // namespace entries
}  // namespace composer::metrics
