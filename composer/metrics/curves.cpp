#include "composer/metrics/curves.h"

#include <limits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
#include "composer/metrics/predicted_classes.h"
#include "composer/metrics/rows.h"
#include "composer/util/loss.h"

namespace composer::metrics {
namespace {

constexpr double kNoArea = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kThresholds = "be 0 (exact) or >= 2";

bool is_number_of_thresholds(std::int64_t number) { return number == 0 || number >= 2; }

std::vector<Option<BinaryCurveOptions>> binary_curve_options() {
  using O = BinaryCurveOptions;
  return with_names<O>(option("thresholds", &O::thresholds).must(kThresholds, is_number_of_thresholds).refuses({"1"}),
                       option("logits", &O::logits), option("ignore_index", &O::ignore_index));
}

std::vector<Option<MulticlassCurveOptions>> multiclass_curve_options() {
  using O = MulticlassCurveOptions;
  return with_names<O>(option("num_classes", &O::num_classes).example("4").at_least(2),
                       option("average", &O::average,
                              {{"macro", Average::MACRO}, {"weighted", Average::WEIGHTED}, {"micro", Average::MICRO}})
                           .must("be macro or weighted", [](Average average) { return average != Average::MICRO; })
                           .refuses({"micro"}),
                       option("thresholds", &O::thresholds).must(kThresholds, is_number_of_thresholds).refuses({"1"}),
                       option("logits", &O::logits), option("ignore_index", &O::ignore_index),
                       option("per_class", &O::per_class), option("class_names", &O::class_names));
}

std::vector<Option<MultilabelCurveOptions>> multilabel_curve_options() {
  using O = MultilabelCurveOptions;
  return with_names<O>(option("num_labels", &O::num_labels).example("3").at_least(2),
                       option("average", &O::average,
                              {{"macro", Average::MACRO}, {"weighted", Average::WEIGHTED}, {"micro", Average::MICRO}}),
                       option("thresholds", &O::thresholds).must(kThresholds, is_number_of_thresholds).refuses({"1"}),
                       option("logits", &O::logits), option("ignore_index", &O::ignore_index),
                       option("per_class", &O::per_class), option("class_names", &O::class_names));
}

// [N, columns, ...] as [N * ..., columns].
at::Tensor by_column(const at::Tensor& tensor, std::int64_t columns) {
  return tensor.movedim(1, -1).reshape({-1, columns});
}

}  // namespace

CurveMetric::CurveMetric(Plan plan) : plan_(std::move(plan)), probabilities_of_(std::make_shared<ProbabilitiesOf>()) {
  plan_.per_class = plan_.per_class || !plan_.class_names.empty();
  if (plan_.per_class) names_of_classes(plan_.name, plan_.class_names, plan_.columns);
}
CurveMetric::CurveMetric(Area area, const char* name, const BinaryCurveOptions& options)
    : CurveMetric(Plan{.area = area,
                       .task = Task::BINARY,
                       .thresholds = checked(name, options, binary_curve_options()).thresholds,
                       .logits = options.logits,
                       .ignore_index = options.ignore_index,
                       .name = options.name.empty() ? name : options.name,
                       .output = options.output,
                       .target = options.target}) {}
template <class Options>
CurveMetric::Plan CurveMetric::plan_of(Area area, Task task, std::int64_t columns, const char* name,
                                       const Options& options) {
  return {.area = area,
          .task = task,
          .columns = columns,
          .average = options.average,
          .thresholds = options.thresholds,
          .logits = options.logits,
          .ignore_index = options.ignore_index,
          .per_class = options.per_class,
          .class_names = options.class_names,
          .name = options.name.empty() ? name : options.name,
          .output = options.output,
          .target = options.target};
}
CurveMetric::CurveMetric(Area area, const char* name, const MulticlassCurveOptions& options)
    : CurveMetric(plan_of(area, Task::MULTICLASS, checked(name, options, multiclass_curve_options()).num_classes, name,
                          options)) {}
CurveMetric::CurveMetric(Area area, const char* name, const MultilabelCurveOptions& options)
    : CurveMetric(plan_of(area, Task::MULTILABEL, checked(name, options, multilabel_curve_options()).num_labels, name,
                          options)) {}
CurveMetric::~CurveMetric() = default;

// Scores in float64: float32 makes different logits equal probabilities.
CurveMetric::Scores CurveMetric::scores_of(const Outputs& outputs, const Batch& batch) {
  const at::Tensor output = pick(outputs, plan_.output).to(at::kDouble);
  const at::Tensor& target = batch.at(plan_.target);
  const std::int64_t columns = plan_.columns;
  const auto sigmoid = [](const at::Tensor& logits) { return logits.sigmoid(); };
  const auto softmax = [](const at::Tensor& logits) { return logits.softmax(1); };
  if (plan_.task == Task::MULTICLASS) {
    if (output.dim() < 2 || output.size(1) != columns || find_target_kind(output, target) != TargetKind::INDICES)
      throw DataError(name(), ": expected outputs [N, ", columns, ", ...] (num_classes is ", columns,
                      ") and targets [N, ...] (classes), got ", output.sizes(), " and ", target.sizes());
    const at::Tensor classes = whole_classes(name(), target);
    check_classes(classes, columns, plan_.ignore_index, name());
    at::Tensor answers = classes, known = output;
    if (plan_.ignore_index) {  // whatever the outputs are there, also for the guess whether they are logits
      const at::Tensor ignored = classes.eq(*plan_.ignore_index);
      answers = answers.masked_fill(ignored, -1);
      known = known.masked_fill(ignored.unsqueeze(1), 0);
    }
    return {by_column((*probabilities_of_)(name(), known, plan_.logits, softmax), columns),
            answers.flatten().unsqueeze(1).to(at::kDouble)};
  }
  const bool is_binary = plan_.task == Task::BINARY;
  check_one_shape(name(), output, target, is_binary ? 0 : columns);
  check_yes_or_no(name(), target, plan_.ignore_index, "; of probabilities give target.gt(0.5)");
  at::Tensor answers = target.to(at::kDouble), known = output;
  if (plan_.ignore_index) {
    const at::Tensor ignored = target.eq(*plan_.ignore_index);
    answers = answers.masked_fill(ignored, -1);
    known = known.masked_fill(ignored, 0);
  }
  const at::Tensor scores = (*probabilities_of_)(name(), known, plan_.logits, sigmoid);
  if (is_binary) return {scores.reshape({-1, 1}), answers.reshape({-1, 1})};
  return {by_column(scores, columns), by_column(answers, columns)};
}

void CurveMetric::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const Scores scores = scores_of(outputs, batch);
  if (plan_.thresholds > 0) return count(scores);
  append_rows(rows_, at::cat({scores.scores, scores.answers}, 1));
}

namespace {

// The answers to "is it this class?" for each class, from the classes [N, 1].
at::Tensor one_vs_rest(const at::Tensor& classes, std::int64_t columns) {
  const at::Tensor is = classes.eq(at::arange(columns, classes.options())).to(at::kDouble);
  return is.masked_fill(classes.lt(0), -1);
}

}  // namespace

void CurveMetric::count(const Scores& scores) {
  const std::int64_t bins = plan_.thresholds + 1, columns = plan_.columns;
  const at::Tensor answers = plan_.task == Task::MULTICLASS ? one_vs_rest(scores.answers, columns) : scores.answers;
  // As in torchmetrics, thresholds are float32, and a score on a threshold is above it.
  const at::Tensor thresholds =
      at::linspace(0, 1, plan_.thresholds, at::TensorOptions(answers.device()).dtype(at::kFloat)).to(at::kDouble);
  const at::Tensor below =
      at::searchsorted(thresholds, scores.scores.contiguous(), /*out_int32=*/false, /*right=*/true);
  const at::Tensor places = (below + at::arange(columns, below.options()) * bins).flatten();
  const auto histogram = [&](const at::Tensor& which) {
    return at::zeros(columns * bins, places.options())
        .scatter_add_(0, places, which.flatten().to(at::kLong))
        .reshape({columns, bins});
  };
  positives_.add(histogram(answers.eq(1)));
  all_.add(histogram(answers.ge(0)));
  undefined_.add(scores.scores.isnan().logical_and_(answers.ge(0)).sum(0));
}

CurveMetric::Counts CurveMetric::counts_of(bool pooled) const {
  if (plan_.thresholds > 0) {
    const auto of = [&](const Sum& sum) {
      const at::Tensor value = sum.value();
      return pooled ? value.sum(0, /*keepdim=*/true) : value;
    };
    const at::Tensor positives = of(positives_), negatives = of(all_) - positives;
    const auto above = [](const at::Tensor& counts) {  // the last bins first, without what is below all thresholds
      return counts.slice(1, 1).flip(1).cumsum(1);
    };
    at::Tensor undefined = undefined_.value();
    if (pooled) undefined = undefined.sum(0, /*keepdim=*/true);
    return {above(positives), above(negatives), positives.sum(1).masked_fill_(undefined.gt(0), kNoArea),
            negatives.sum(1)};
  }
  const at::Tensor rows = joined(rows_);
  const std::int64_t columns = plan_.columns;
  at::Tensor scores = rows.narrow(1, 0, columns), answers = rows.slice(1, columns);
  if (plan_.task == Task::MULTICLASS) answers = one_vs_rest(answers, columns);
  if (pooled) {
    scores = scores.reshape({-1, 1});
    answers = answers.reshape({-1, 1});
  }
  scores = scores.t().contiguous();
  const auto [sorted, order] = scores.sort(1);
  const at::Tensor by_score = answers.t().gather(1, order);
  const at::Tensor first = count_smaller(sorted);  // the first of the equal scores
  const auto from_here_on = [&](const at::Tensor& which) {
    const at::Tensor summed = which.to(at::kDouble).cumsum(1), before = at::constant_pad_nd(summed, {1, 0});
    return (before.slice(1, -1) - before.gather(1, first)).flip(1);
  };
  const at::Tensor yes = by_score.eq(1), no = by_score.eq(0);
  at::Tensor positives = yes.to(at::kDouble).sum(1);
  positives.masked_fill_(sorted.isnan().any(1), kNoArea);  // the scores of a model that has diverged
  return {from_here_on(yes), from_here_on(no), positives, no.to(at::kDouble).sum(1)};
}

at::Tensor CurveMetric::areas(const Counts& counts) const {
  const auto step = [](const at::Tensor& curve) { return curve - at::constant_pad_nd(curve, {1, -1}); };
  const at::Tensor added = step(counts.right);
  at::Tensor area;
  if (plan_.area == Area::ROC) {
    const at::Tensor pairs = (step(counts.wrong) * (counts.right - added / 2)).sum(1);
    const at::Tensor all = counts.positives * counts.negatives;
    area = at::where(all.eq(0), 0., pairs / all);
  } else {
    const at::Tensor precision = counts.right / (counts.right + counts.wrong).clamp_min(1);
    area = at::where(counts.positives.eq(0), 0., (added * precision).sum(1) / counts.positives);
  }
  return area.masked_fill(is_without_area(counts), kNoArea);
}

// Of no answers, and as in torchmetrics the exact precision and recall of a class that is no target. Such classes are
// not averaged.
at::Tensor CurveMetric::is_without_area(const Counts& counts) const {
  if (plan_.area == Area::PRECISION_RECALL && plan_.task == Task::MULTICLASS && plan_.thresholds == 0)
    return counts.positives.eq(0);
  return (counts.positives + counts.negatives).eq(0);
}

at::Tensor CurveMetric::compute() const {
  const at::NoGradGuard no_grad;
  if (plan_.thresholds > 0 ? all_.value().dim() == 0 : rows_.empty()) return at::scalar_tensor(kNoArea, at::kDouble);
  const Counts counts = counts_of(/*pooled=*/plan_.average == Average::MICRO);
  const at::Tensor each = areas(counts);
  if (each.size(0) == 1) return each.select(0, 0);
  const at::Tensor left_out = is_without_area(counts);
  const at::Tensor weights =
      (plan_.average == Average::WEIGHTED ? counts.positives : at::ones_like(each)).masked_fill(left_out, 0);
  const at::Tensor sum = weights.sum();
  const at::Tensor mean = (each.masked_fill(left_out, 0) * weights).sum() / sum.masked_fill(sum.eq(0), 1);
  return mean.masked_fill(left_out.all(), kNoArea);
}

at::Tensor CurveMetric::compute_values() const {
  const at::NoGradGuard no_grad;
  if (plan_.thresholds > 0 ? all_.value().dim() == 0 : rows_.empty())
    return at::full(plan_.columns, kNoArea, at::kDouble);
  return areas(counts_of(/*pooled=*/false));
}

std::vector<std::string> CurveMetric::value_names() const {
  if (!plan_.per_class) return {};
  return names_of_classes(plan_.name, plan_.class_names, plan_.columns);
}

void CurveMetric::reset() {
  rows_.clear();
  positives_.reset();
  all_.reset();
  undefined_.reset();
}

void CurveMetric::visit_sums(const VisitSum& visit) {
  if (plan_.thresholds == 0) return;
  visit("positives", positives_.tensor());
  visit("all", all_.tensor());
  visit("undefined", undefined_.tensor());
}

void CurveMetric::visit_rows(const VisitRows& visit) {
  if (plan_.thresholds == 0) visit("scores", rows_);
}

BinaryAUROC::BinaryAUROC(BinaryCurveOptions options)
    : CurveMetric(Area::ROC, "BinaryAUROC", options), options_(std::move(options)) {}
BinaryAUROC::~BinaryAUROC() = default;
MulticlassAUROC::MulticlassAUROC(MulticlassCurveOptions options)
    : CurveMetric(Area::ROC, "MulticlassAUROC", options), options_(std::move(options)) {}
MulticlassAUROC::~MulticlassAUROC() = default;
MultilabelAUROC::MultilabelAUROC(MultilabelCurveOptions options)
    : CurveMetric(Area::ROC, "MultilabelAUROC", options), options_(std::move(options)) {}
MultilabelAUROC::~MultilabelAUROC() = default;
BinaryAveragePrecision::BinaryAveragePrecision(BinaryCurveOptions options)
    : CurveMetric(Area::PRECISION_RECALL, "BinaryAveragePrecision", options), options_(std::move(options)) {}
BinaryAveragePrecision::~BinaryAveragePrecision() = default;
MulticlassAveragePrecision::MulticlassAveragePrecision(MulticlassCurveOptions options)
    : CurveMetric(Area::PRECISION_RECALL, "MulticlassAveragePrecision", options), options_(std::move(options)) {}
MulticlassAveragePrecision::~MulticlassAveragePrecision() = default;
MultilabelAveragePrecision::MultilabelAveragePrecision(MultilabelCurveOptions options)
    : CurveMetric(Area::PRECISION_RECALL, "MultilabelAveragePrecision", options), options_(std::move(options)) {}
MultilabelAveragePrecision::~MultilabelAveragePrecision() = default;

StateDict BinaryAUROC::local_hparams() const { return describe(options_, binary_curve_options()); }
StateDict MulticlassAUROC::local_hparams() const { return describe(options_, multiclass_curve_options()); }
StateDict MultilabelAUROC::local_hparams() const { return describe(options_, multilabel_curve_options()); }
StateDict BinaryAveragePrecision::local_hparams() const { return describe(options_, binary_curve_options()); }
StateDict MulticlassAveragePrecision::local_hparams() const { return describe(options_, multiclass_curve_options()); }
StateDict MultilabelAveragePrecision::local_hparams() const { return describe(options_, multilabel_curve_options()); }

namespace entries {

Entry<Metrics> binary_auroc() {
  return entry<BinaryAUROC>("binary_auroc", "Area under the ROC curve", binary_curve_options());
}
Entry<Metrics> multiclass_auroc() {
  return entry<MulticlassAUROC>("multiclass_auroc", "Area under the ROC curve of each class against the others",
                                multiclass_curve_options());
}
Entry<Metrics> multilabel_auroc() {
  return entry<MultilabelAUROC>("multilabel_auroc", "Area under the ROC curve of each label",
                                multilabel_curve_options());
}
Entry<Metrics> binary_average_precision() {
  return entry<BinaryAveragePrecision>("binary_average_precision", "Area under the precision-recall curve",
                                       binary_curve_options());
}
Entry<Metrics> multiclass_average_precision() {
  return entry<MulticlassAveragePrecision>("multiclass_average_precision",
                                           "Area under the precision-recall curve of each class",
                                           multiclass_curve_options());
}
Entry<Metrics> multilabel_average_precision() {
  return entry<MultilabelAveragePrecision>("multilabel_average_precision",
                                           "Area under the precision-recall curve of each label",
                                           multilabel_curve_options());
}

}  // namespace entries
}  // namespace composer::metrics
