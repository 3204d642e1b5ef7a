#include "composer/metrics/answers.h"

#include <limits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
#include "composer/metrics/predicted_classes.h"
#include "composer/util/loss.h"

namespace composer::metrics {
namespace {

constexpr double kNoAnswers = std::numeric_limits<double>::quiet_NaN();

template <class O, class... T>
std::vector<Option<O>> with_binary_options(Field<O, T>... own) {
  return with_names<O>(std::move(own)..., option("threshold", &O::threshold).from_to(0, 1),
                       option("logits", &O::logits), option("ignore_index", &O::ignore_index));
}

template <class O, class... T>
std::vector<Option<O>> with_multilabel_options(Field<O, T>... own) {
  return with_names<O>(std::move(own)..., option("num_labels", &O::num_labels).example("3").at_least(2),
                       option("average", &O::average,
                              {{"macro", Average::MACRO}, {"weighted", Average::WEIGHTED}, {"micro", Average::MICRO}}),
                       option("threshold", &O::threshold).from_to(0, 1), option("logits", &O::logits),
                       option("ignore_index", &O::ignore_index), option("per_class", &O::per_class),
                       option("class_names", &O::class_names));
}

std::vector<Option<BinaryOptions>> binary_options() { return with_binary_options<BinaryOptions>(); }
std::vector<Option<MultilabelOptions>> multilabel_options() { return with_multilabel_options<MultilabelOptions>(); }
std::vector<Option<BinaryFBetaOptions>> binary_f_beta_options() {
  return with_binary_options<BinaryFBetaOptions>(option("beta", &BinaryFBetaOptions::beta).above(0).finite());
}
std::vector<Option<MultilabelFBetaOptions>> multilabel_f_beta_options() {
  return with_multilabel_options<MultilabelFBetaOptions>(
      option("beta", &MultilabelFBetaOptions::beta).above(0).finite());
}
std::vector<Option<MultilabelExactMatchOptions>> multilabel_exact_match_options() {
  return with_binary_options<MultilabelExactMatchOptions>();
}

BinaryOptions binary_without_beta(const BinaryFBetaOptions& all) {
  return {.threshold = all.threshold,
          .logits = all.logits,
          .ignore_index = all.ignore_index,
          .name = all.name,
          .output = all.output,
          .target = all.target};
}

MultilabelOptions multilabel_without_beta(const MultilabelFBetaOptions& all) {
  return {.num_labels = all.num_labels,
          .average = all.average,
          .threshold = all.threshold,
          .logits = all.logits,
          .ignore_index = all.ignore_index,
          .per_class = all.per_class,
          .class_names = all.class_names,
          .name = all.name,
          .output = all.output,
          .target = all.target};
}

at::Tensor sigmoid_of(const at::Tensor& logits) { return logits.sigmoid(); }

// The quotient, and 0 for 0 / 0.
at::Tensor part_of(const at::Tensor& part, const at::Tensor& whole) {
  return (part / whole).masked_fill(whole.eq(0), 0);
}

}  // namespace

AnswersMetric::AnswersMetric(Plan plan)
    : plan_(std::move(plan)), probabilities_of_(std::make_shared<ProbabilitiesOf>()) {
  plan_.per_class = plan_.per_class || !plan_.class_names.empty();
  if (plan_.per_class) names_of_classes(plan_.name, plan_.class_names, plan_.labels);
}
AnswersMetric::AnswersMetric(Score score, const char* name, const BinaryOptions& options, double beta)
    : AnswersMetric(Plan{.score = score,
                         .beta = beta,
                         .threshold = checked(name, options, binary_options()).threshold,
                         .logits = options.logits,
                         .ignore_index = options.ignore_index,
                         .name = options.name.empty() ? name : options.name,
                         .output = options.output,
                         .target = options.target}) {}
AnswersMetric::AnswersMetric(Score score, const char* name, const MultilabelOptions& options, double beta)
    : AnswersMetric(Plan{.score = score,
                         .beta = beta,
                         .labels = checked(name, options, multilabel_options()).num_labels,
                         .average = options.average,
                         .threshold = options.threshold,
                         .logits = options.logits,
                         .ignore_index = options.ignore_index,
                         .per_class = options.per_class,
                         .class_names = options.class_names,
                         .name = options.name.empty() ? name : options.name,
                         .output = options.output,
                         .target = options.target}) {}
AnswersMetric::~AnswersMetric() = default;

void AnswersMetric::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor output = at_least_float(pick(outputs, plan_.output));
  const at::Tensor& target = batch.at(plan_.target);
  const std::int64_t labels = plan_.labels;
  check_one_shape(name(), output, target, labels);
  check_yes_or_no(name(), target, plan_.ignore_index, "; of probabilities give target.gt(0.5)");
  at::Tensor yes = (*probabilities_of_)(name(), output, plan_.logits, sigmoid_of).gt(plan_.threshold);
  at::Tensor actual = target.eq(1), valid;
  if (plan_.ignore_index) {
    valid = not_ignored(target, *plan_.ignore_index);
    yes.logical_and_(valid);
    actual.logical_and_(valid);
  }
  const auto sum = [&](const at::Tensor& which) {
    return labels > 0 ? which.movedim(1, -1).reshape({-1, labels}).sum(0) : which.sum();
  };
  right_.add(sum(yes.logical_and(actual)));
  predicted_.add(sum(yes));
  actual_.add(sum(actual));
  if (valid.defined()) {
    all_.add(sum(valid));
  } else if (labels > 0) {
    all_.add(at::full(labels, target.numel() / labels, yes.options().dtype(at::kLong)));
  } else {
    all_.add(target.numel(), target.device());
  }
}

at::Tensor AnswersMetric::score(const Counts& counts) const {
  const auto& [right, predicted, actual, all] = counts;
  switch (plan_.score) {
    case Score::ACCURACY:
      return part_of(all - predicted - actual + right * 2, all);
    case Score::PRECISION:
      return part_of(right, predicted);
    case Score::RECALL:
      return part_of(right, actual);
    case Score::SPECIFICITY:
      return part_of(all - actual - (predicted - right), all - actual);
    case Score::F_BETA:
      break;
  }
  const double square = plan_.beta * plan_.beta;
  return part_of(right * (1 + square), actual * square + predicted);
}

at::Tensor AnswersMetric::compute() const {
  const at::NoGradGuard no_grad;
  const Counts counts{right_.value(), predicted_.value(), actual_.value(), all_.value()};
  const at::Tensor nothing = counts.all.sum().nan_to_num(0).eq(0);
  if (plan_.average == Average::MICRO || counts.all.dim() == 0)
    return score({counts.right.sum(), counts.predicted.sum(), counts.actual.sum(), counts.all.sum()})
        .masked_fill(nothing, kNoAnswers);
  const at::Tensor each = score(counts);
  const at::Tensor weights = plan_.average == Average::WEIGHTED ? counts.actual : at::ones_like(each);
  return part_of((each * weights).sum(), weights.sum()).masked_fill(nothing, kNoAnswers);
}

std::vector<std::string> AnswersMetric::value_names() const {
  if (!plan_.per_class) return {};
  return names_of_classes(plan_.name, plan_.class_names, plan_.labels);
}

at::Tensor AnswersMetric::compute_values() const {
  const at::NoGradGuard no_grad;
  const Counts counts{right_.value(), predicted_.value(), actual_.value(), all_.value()};
  if (counts.all.dim() == 0) return at::full(plan_.labels, kNoAnswers, at::kDouble);
  return score(counts).masked_fill(counts.all.eq(0), kNoAnswers);
}

void AnswersMetric::reset() {
  for (Sum* sum : {&right_, &predicted_, &actual_, &all_}) sum->reset();
}

void AnswersMetric::visit_sums(const VisitSum& visit) {
  visit("right", right_.tensor());
  visit("predicted", predicted_.tensor());
  visit("actual", actual_.tensor());
  visit("all", all_.tensor());
}

BinaryPrecision::BinaryPrecision(BinaryOptions options)
    : AnswersMetric(Score::PRECISION, "BinaryPrecision", options), options_(std::move(options)) {}
BinaryPrecision::~BinaryPrecision() = default;
BinaryRecall::BinaryRecall(BinaryOptions options)
    : AnswersMetric(Score::RECALL, "BinaryRecall", options), options_(std::move(options)) {}
BinaryRecall::~BinaryRecall() = default;
BinarySpecificity::BinarySpecificity(BinaryOptions options)
    : AnswersMetric(Score::SPECIFICITY, "BinarySpecificity", options), options_(std::move(options)) {}
BinarySpecificity::~BinarySpecificity() = default;
BinaryFBetaScore::BinaryFBetaScore(BinaryFBetaOptions options)
    : AnswersMetric(Score::F_BETA, "BinaryFBetaScore", binary_without_beta(options), options.beta),
      options_(checked("BinaryFBetaScore", std::move(options), binary_f_beta_options())) {}
BinaryFBetaScore::~BinaryFBetaScore() = default;
MultilabelAccuracy::MultilabelAccuracy(MultilabelOptions options)
    : AnswersMetric(Score::ACCURACY, "MultilabelAccuracy", options), options_(std::move(options)) {}
MultilabelAccuracy::~MultilabelAccuracy() = default;
MultilabelPrecision::MultilabelPrecision(MultilabelOptions options)
    : AnswersMetric(Score::PRECISION, "MultilabelPrecision", options), options_(std::move(options)) {}
MultilabelPrecision::~MultilabelPrecision() = default;
MultilabelRecall::MultilabelRecall(MultilabelOptions options)
    : AnswersMetric(Score::RECALL, "MultilabelRecall", options), options_(std::move(options)) {}
MultilabelRecall::~MultilabelRecall() = default;
MultilabelSpecificity::MultilabelSpecificity(MultilabelOptions options)
    : AnswersMetric(Score::SPECIFICITY, "MultilabelSpecificity", options), options_(std::move(options)) {}
MultilabelSpecificity::~MultilabelSpecificity() = default;
MultilabelFBetaScore::MultilabelFBetaScore(MultilabelFBetaOptions options)
    : AnswersMetric(Score::F_BETA, "MultilabelFBetaScore", multilabel_without_beta(options), options.beta),
      options_(checked("MultilabelFBetaScore", std::move(options), multilabel_f_beta_options())) {}
MultilabelFBetaScore::~MultilabelFBetaScore() = default;

MultilabelExactMatch::MultilabelExactMatch(MultilabelExactMatchOptions options)
    : options_(checked("MultilabelExactMatch", std::move(options), multilabel_exact_match_options())),
      probabilities_of_(std::make_shared<ProbabilitiesOf>()) {}
MultilabelExactMatch::~MultilabelExactMatch() = default;

void MultilabelExactMatch::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor output = at_least_float(pick(outputs, options_.output));
  const at::Tensor& target = batch.at(options_.target);
  if (output.sizes() != target.sizes() || output.dim() < 2)
    throw DataError(name(), ": outputs and targets must have one shape [N, L, ...], got ", output.sizes(), " and ",
                    target.sizes());
  check_yes_or_no(name(), target, options_.ignore_index, "; of probabilities give target.gt(0.5)");
  const at::Tensor yes = (*probabilities_of_)(name(), output, options_.logits, sigmoid_of).gt(options_.threshold);
  const at::Tensor right = yes.eq(target.eq(1));
  if (!options_.ignore_index) {
    const at::Tensor all = right.all(1);
    over_.add(all.sum());
    under_.add(all.numel(), all.device());
    return;
  }
  const at::Tensor valid = not_ignored(target, *options_.ignore_index), counts = valid.any(1);
  over_.add(right.logical_or(valid.logical_not()).all(1).logical_and_(counts).sum());
  under_.add(counts.sum());
}

StateDict BinaryPrecision::local_hparams() const { return describe(options_, binary_options()); }
StateDict BinaryRecall::local_hparams() const { return describe(options_, binary_options()); }
StateDict BinarySpecificity::local_hparams() const { return describe(options_, binary_options()); }
StateDict BinaryFBetaScore::local_hparams() const { return describe(options_, binary_f_beta_options()); }
StateDict MultilabelAccuracy::local_hparams() const { return describe(options_, multilabel_options()); }
StateDict MultilabelPrecision::local_hparams() const { return describe(options_, multilabel_options()); }
StateDict MultilabelRecall::local_hparams() const { return describe(options_, multilabel_options()); }
StateDict MultilabelSpecificity::local_hparams() const { return describe(options_, multilabel_options()); }
StateDict MultilabelFBetaScore::local_hparams() const { return describe(options_, multilabel_f_beta_options()); }
StateDict MultilabelExactMatch::local_hparams() const { return describe(options_, multilabel_exact_match_options()); }

namespace entries {

Entry<Metrics> binary_precision() {
  return entry<BinaryPrecision>("binary_precision", "Share of the predicted yes that are right", binary_options());
}
Entry<Metrics> binary_recall() {
  return entry<BinaryRecall>("binary_recall", "Share of the yes among targets that were predicted", binary_options());
}
Entry<Metrics> binary_specificity() {
  return entry<BinarySpecificity>("binary_specificity", "Share of the no among targets that were predicted",
                                  binary_options());
}
Entry<Metrics> binary_f_beta_score() {
  return entry<BinaryFBetaScore>("binary_f_beta_score", "Weighted harmonic mean of precision and recall",
                                 binary_f_beta_options());
}
Entry<Metrics> multilabel_accuracy() {
  return entry<MultilabelAccuracy>("multilabel_accuracy", "Share of right answers, over labels", multilabel_options());
}
Entry<Metrics> multilabel_precision() {
  return entry<MultilabelPrecision>("multilabel_precision", "Share of the predicted yes that are right, over labels",
                                    multilabel_options());
}
Entry<Metrics> multilabel_recall() {
  return entry<MultilabelRecall>("multilabel_recall", "Share of the yes among targets that were predicted, over labels",
                                 multilabel_options());
}
Entry<Metrics> multilabel_specificity() {
  return entry<MultilabelSpecificity>(
      "multilabel_specificity", "Share of the no among targets that were predicted, over labels", multilabel_options());
}
Entry<Metrics> multilabel_f_beta_score() {
  return entry<MultilabelFBetaScore>("multilabel_f_beta_score",
                                     "Weighted harmonic mean of precision and recall, over labels",
                                     multilabel_f_beta_options());
}
Entry<Metrics> multilabel_exact_match() {
  return entry<MultilabelExactMatch>("multilabel_exact_match", "Share of samples all of whose labels are right",
                                     multilabel_exact_match_options());
}

}  // namespace entries
}  // namespace composer::metrics
