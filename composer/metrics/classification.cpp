#include "composer/metrics/classification.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
#include "composer/metrics/predicted_classes.h"
#include "composer/util/loss.h"

namespace composer::metrics {
namespace {

constexpr std::int64_t kNoClass = -100;  // stands for probabilities none of which is above 0

// The quotient, and 0 for 0 / 0.
at::Tensor share(const at::Tensor& part, const at::Tensor& whole) { return part / whole.clamp_min(1); }

// The class that counts as predicted: the target if it is among the k highest, otherwise the highest.
at::Tensor predictions(const at::Tensor& logits, const at::Tensor& target, std::int64_t k) {
  if (k == 1) return logits.argmax(1);
  const at::Tensor highest = std::get<1>(logits.topk(k, 1));
  return at::where(highest.eq(target.unsqueeze(1)).any(1), target, highest.select(1, 0));
}

}  // namespace

MulticlassMetric::MulticlassMetric(std::string default_name, MulticlassOptions options) : options_(std::move(options)) {
  auto& [num_classes, top_k, average, ignore_index, name, output, target] = options_;
  if (name.empty()) name = std::move(default_name);
  if (num_classes < (average == Average::MICRO ? 0 : 1))
    throw ConfigError(name, ": num_classes must be >= 1, got ", num_classes);
  if (top_k < 1 || (num_classes > 0 && top_k > num_classes))
    throw ConfigError(name, ": top_k must be at least 1 and at most num_classes, got ", top_k);
}

MulticlassMetric::~MulticlassMetric() = default;

at::Tensor MulticlassMetric::classes_of(const at::Tensor& logits, const at::Tensor& target) const {
  const std::int64_t wanted = options_.num_classes;
  const std::optional<TargetKind> kind = find_target_kind(logits, target);
  if (!kind || logits.dim() < 2 || (wanted > 0 && logits.size(1) != wanted)) {
    const std::string c = wanted > 0 ? std::to_string(wanted) : "C";
    throw DataError(name(), ": expected outputs [N, ", c, ", ...] and targets [N, ...] (classes) or [N, ", c,
                    ", ...] (probabilities), got ", logits.sizes(), " and ", target.sizes());
  }
  const std::int64_t classes = logits.size(1);
  if (classes < 2)
    throw DataError(name(), ": needs outputs of at least two classes, got ", logits.sizes(),
                    "; BinaryAccuracy is for yes-no questions");
  if (options_.top_k > classes)
    throw DataError(name(), ": top_k is ", options_.top_k, ", and the outputs have ", classes, " classes");
  if (*kind == TargetKind::PROBABILITIES) {
    const auto [largest, likeliest] = target.max(1);
    return likeliest.masked_fill(largest.gt(0).logical_not_(), options_.ignore_index.value_or(kNoClass));
  }
  const at::Tensor whole = whole_classes(name(), target);
  check_classes(whole, classes, options_.ignore_index, name());
  return whole;
}

void MulticlassMetric::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor& logits = pick(outputs, options_.output);
  const at::Tensor target = classes_of(logits, batch.at(options_.target));
  const at::Tensor predicted = predictions(logits, target, options_.top_k);
  at::Tensor right = predicted.eq(target), valid;
  const bool is_soft = batch.at(options_.target).dim() == logits.dim();
  if (options_.ignore_index || is_soft) {
    const std::int64_t ignored = options_.ignore_index.value_or(kNoClass);
    valid = not_ignored(target, ignored);
    if (ignored >= 0) right.logical_and_(valid);  // a negative class cannot be predicted
  }
  if (options_.average == Average::MICRO) {
    right_.add(right.sum());
    if (valid.defined()) {
      actual_.add(valid.sum());
    } else {
      actual_.add(target.numel(), target.device());
    }
    return;
  }
  right_.add(count_by_class(target, right, options_.num_classes));
  predicted_.add(count_by_class(predicted, valid, options_.num_classes));
  actual_.add(count_by_class(target, valid, options_.num_classes));
}

at::Tensor MulticlassMetric::per_class() const {
  if (options_.average == Average::MICRO) throw ConfigError(name(), ": per_class needs the average MACRO or WEIGHTED");
  const at::Tensor right = right_.value();
  if (right.dim() == 0) return right.expand({options_.num_classes});
  return score(right, predicted_.value(), actual_.value());
}

at::Tensor MulticlassMetric::occurring(const at::Tensor& predicted, const at::Tensor& actual) const {
  return (options_.top_k > 1 ? actual : actual + predicted).gt(0);
}

at::Tensor MulticlassMetric::compute() const {
  if (options_.average == Average::MICRO) return right_.value() / actual_.value();
  at::Tensor actual = actual_.value();
  if (actual.dim() == 0) return actual;
  const at::Tensor weight =
      options_.average == Average::MACRO ? occurring(predicted_.value(), actual).to(at::kDouble) : actual;
  return (per_class() * weight).sum() / weight.sum();
}

void MulticlassMetric::reset() {
  right_.reset();
  predicted_.reset();
  actual_.reset();
}

void MulticlassMetric::visit_sums(const VisitSum& visit) {
  visit("right", right_.tensor());
  if (options_.average != Average::MICRO) visit("predicted", predicted_.tensor());
  visit("actual", actual_.tensor());
}

MulticlassAccuracy::MulticlassAccuracy(MulticlassOptions options)
    : MulticlassMetric("MulticlassAccuracy", std::move(options)) {}
MulticlassAccuracy::~MulticlassAccuracy() = default;
std::shared_ptr<Metric> MulticlassAccuracy::fresh() const { return std::make_shared<MulticlassAccuracy>(options()); }
at::Tensor MulticlassAccuracy::score(const at::Tensor& right, const at::Tensor&, const at::Tensor& actual) const {
  return share(right, actual);
}

MulticlassRecall::MulticlassRecall(MulticlassOptions options)
    : MulticlassMetric("MulticlassRecall", std::move(options)) {}
MulticlassRecall::~MulticlassRecall() = default;
std::shared_ptr<Metric> MulticlassRecall::fresh() const { return std::make_shared<MulticlassRecall>(options()); }
at::Tensor MulticlassRecall::score(const at::Tensor& right, const at::Tensor&, const at::Tensor& actual) const {
  return share(right, actual);
}

MulticlassPrecision::MulticlassPrecision(MulticlassOptions options)
    : MulticlassMetric("MulticlassPrecision", std::move(options)) {}
MulticlassPrecision::~MulticlassPrecision() = default;
std::shared_ptr<Metric> MulticlassPrecision::fresh() const { return std::make_shared<MulticlassPrecision>(options()); }
at::Tensor MulticlassPrecision::score(const at::Tensor& right, const at::Tensor& predicted, const at::Tensor&) const {
  return share(right, predicted);
}

MulticlassF1Score::MulticlassF1Score(MulticlassOptions options)
    : MulticlassMetric("MulticlassF1Score", std::move(options)) {}
MulticlassF1Score::~MulticlassF1Score() = default;
at::Tensor MulticlassF1Score::occurring(const at::Tensor& predicted, const at::Tensor& actual) const {
  return (actual + predicted).gt(0);
}
std::shared_ptr<Metric> MulticlassF1Score::fresh() const { return std::make_shared<MulticlassF1Score>(options()); }
at::Tensor MulticlassF1Score::score(const at::Tensor& right, const at::Tensor& predicted,
                                    const at::Tensor& actual) const {
  return share(right * 2, predicted + actual);
}

namespace {

std::vector<Option<MulticlassOptions>> multiclass_options() {
  using O = MulticlassOptions;
  return with_names<O>(option("num_classes", &O::num_classes).refuses({"-1"}),
                       option("top_k", &O::top_k).refuses({"0"}),
                       option("average", &O::average,
                              {{"micro", Average::MICRO}, {"macro", Average::MACRO}, {"weighted", Average::WEIGHTED}})
                           .refuses({"macro"}),
                       option("ignore_index", &O::ignore_index));
}

}  // namespace

StateDict MulticlassMetric::local_hparams() const { return describe(options_, multiclass_options()); }

namespace entries {

Entry<Metrics> multiclass_accuracy() {
  return entry<MulticlassAccuracy>("multiclass_accuracy", "Share of targets that were predicted", multiclass_options());
}
Entry<Metrics> multiclass_f1_score() {
  return entry<MulticlassF1Score>("multiclass_f1_score", "Harmonic mean of precision and recall", multiclass_options());
}
Entry<Metrics> multiclass_precision() {
  return entry<MulticlassPrecision>("multiclass_precision", "Share of predictions that were right",
                                    multiclass_options());
}
Entry<Metrics> multiclass_recall() {
  return entry<MulticlassRecall>("multiclass_recall", "Share of targets that were predicted, by another name",
                                 multiclass_options());
}

}  // namespace entries
}  // namespace composer::metrics
