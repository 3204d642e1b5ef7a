#include "composer/metrics/classification.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
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
  auto& [num_classes, top_k, average, ignore_index, per_class, class_names, name, output, target] = options_;
  if (name.empty()) name = std::move(default_name);
  if (num_classes < (counts_classes() ? 1 : 0))
    throw ConfigError(name, ": num_classes must be >= 1, got ", num_classes);
  if (top_k < 1 || (num_classes > 0 && top_k > num_classes))
    throw ConfigError(name, ": top_k must be at least 1 and at most num_classes, got ", top_k);
  if (per_class || !class_names.empty()) names_of_classes(name, class_names, num_classes);
  per_class = per_class || !class_names.empty();
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
  if (!counts_classes()) {
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
  if (!counts_classes())
    throw ConfigError(name(), ": per_class() needs the option per_class, or the average MACRO or WEIGHTED");
  const at::Tensor right = right_.value();
  if (right.dim() == 0) return right.expand({options_.num_classes});
  const at::Tensor actual = actual_.value();
  return score({right, predicted_.value(), actual, actual.sum()});
}

std::vector<std::string> MulticlassMetric::value_names() const {
  if (!options_.per_class) return {};
  return names_of_classes(name(), options_.class_names, options_.num_classes);
}

at::Tensor MulticlassMetric::compute_values() const {
  return per_class().masked_fill(actual_.value().sum().eq(0), std::numeric_limits<double>::quiet_NaN());
}

at::Tensor MulticlassMetric::micro(const at::Tensor& right, const at::Tensor& total) const { return right / total; }

at::Tensor MulticlassMetric::occurring(const at::Tensor& predicted, const at::Tensor& actual) const {
  return (options_.top_k > 1 ? actual : actual + predicted).gt(0);
}

at::Tensor MulticlassMetric::compute() const {
  if (options_.average == Average::MICRO) return micro(right_.value().sum(), actual_.value().sum());
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
  if (counts_classes()) visit("predicted", predicted_.tensor());
  visit("actual", actual_.tensor());
}

MulticlassAccuracy::MulticlassAccuracy(MulticlassOptions options)
    : MulticlassMetric("MulticlassAccuracy", std::move(options)) {}
MulticlassAccuracy::~MulticlassAccuracy() = default;
std::shared_ptr<Metric> MulticlassAccuracy::fresh() const { return std::make_shared<MulticlassAccuracy>(options()); }
at::Tensor MulticlassAccuracy::score(const Counts& counts) const { return share(counts.right, counts.actual); }

MulticlassRecall::MulticlassRecall(MulticlassOptions options)
    : MulticlassMetric("MulticlassRecall", std::move(options)) {}
MulticlassRecall::~MulticlassRecall() = default;
std::shared_ptr<Metric> MulticlassRecall::fresh() const { return std::make_shared<MulticlassRecall>(options()); }
at::Tensor MulticlassRecall::score(const Counts& counts) const { return share(counts.right, counts.actual); }

MulticlassPrecision::MulticlassPrecision(MulticlassOptions options)
    : MulticlassMetric("MulticlassPrecision", std::move(options)) {}
MulticlassPrecision::~MulticlassPrecision() = default;
std::shared_ptr<Metric> MulticlassPrecision::fresh() const { return std::make_shared<MulticlassPrecision>(options()); }
at::Tensor MulticlassPrecision::score(const Counts& counts) const { return share(counts.right, counts.predicted); }

MulticlassF1Score::MulticlassF1Score(MulticlassOptions options)
    : MulticlassMetric("MulticlassF1Score", std::move(options)) {}
MulticlassF1Score::~MulticlassF1Score() = default;
at::Tensor MulticlassF1Score::occurring(const at::Tensor& predicted, const at::Tensor& actual) const {
  return (actual + predicted).gt(0);
}
std::shared_ptr<Metric> MulticlassF1Score::fresh() const { return std::make_shared<MulticlassF1Score>(options()); }
at::Tensor MulticlassF1Score::score(const Counts& counts) const {
  return share(counts.right * 2, counts.predicted + counts.actual);
}

MulticlassSpecificity::MulticlassSpecificity(MulticlassOptions options)
    : MulticlassMetric("MulticlassSpecificity", std::move(options)) {
  if (this->options().num_classes < 2)
    throw ConfigError(name(), ": num_classes must be >= 2, got ", this->options().num_classes);
}
MulticlassSpecificity::~MulticlassSpecificity() = default;
std::shared_ptr<Metric> MulticlassSpecificity::fresh() const {
  return std::make_shared<MulticlassSpecificity>(options());
}
at::Tensor MulticlassSpecificity::occurring(const at::Tensor& predicted, const at::Tensor& actual) const {
  return (actual + predicted).gt(0);
}
at::Tensor MulticlassSpecificity::score(const Counts& counts) const {
  const at::Tensor others = counts.total - counts.actual;
  return share(others - (counts.predicted - counts.right), others);
}
// Each target is a question for each class: of those whose answer is no, a wrong prediction answers one with yes.
at::Tensor MulticlassSpecificity::micro(const at::Tensor& right, const at::Tensor& total) const {
  const at::Tensor others = total * (options().num_classes - 1);
  return (others - (total - right)) / others;
}

namespace {

MulticlassOptions without_beta(const MulticlassFBetaOptions& all) {
  return {.num_classes = all.num_classes,
          .top_k = all.top_k,
          .average = all.average,
          .ignore_index = all.ignore_index,
          .per_class = all.per_class,
          .class_names = all.class_names,
          .name = all.name,
          .output = all.output,
          .target = all.target};
}

template <class O, class... T>
std::vector<Option<O>> with_multiclass_options(Field<O, T>... own) {
  return with_names<O>(std::move(own)..., option("num_classes", &O::num_classes).refuses({"-1"}),
                       option("top_k", &O::top_k).refuses({"0"}),
                       option("average", &O::average,
                              {{"micro", Average::MICRO}, {"macro", Average::MACRO}, {"weighted", Average::WEIGHTED}})
                           .refuses({"macro"}),
                       option("ignore_index", &O::ignore_index), option("per_class", &O::per_class).refuses({"true"}),
                       option("class_names", &O::class_names));
}

std::vector<Option<MulticlassOptions>> multiclass_options() { return with_multiclass_options<MulticlassOptions>(); }

std::vector<Option<MulticlassFBetaOptions>> multiclass_f_beta_options() {
  return with_multiclass_options<MulticlassFBetaOptions>(
      option("beta", &MulticlassFBetaOptions::beta).above(0).finite());
}

std::vector<Option<MulticlassOptions>> specificity_options() {
  using O = MulticlassOptions;
  return with_names<O>(option("num_classes", &O::num_classes).example("4").at_least(2),
                       option("top_k", &O::top_k).refuses({"0"}),
                       option("average", &O::average,
                              {{"micro", Average::MICRO}, {"macro", Average::MACRO}, {"weighted", Average::WEIGHTED}}),
                       option("ignore_index", &O::ignore_index), option("per_class", &O::per_class),
                       option("class_names", &O::class_names));
}

// Numbers as text: "1,5".
std::string text_of_ks(const std::vector<std::int64_t>& ks) {
  std::string text;
  for (const std::int64_t k : ks) text += join(text.empty() ? "" : ",", k);
  return text;
}

std::vector<std::int64_t> read_ks(const std::string& text) {
  std::vector<std::string> parts;
  detail::read_text(text, parts);
  std::vector<std::int64_t> ks(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) detail::read_text(parts[i], ks[i]);
  return ks;
}

std::vector<Option<TopKAccuracyOptions>> top_k_accuracy_options() {
  using O = TopKAccuracyOptions;
  const auto are_valid = [](const std::vector<std::int64_t>& ks) {
    std::set<std::int64_t> seen;
    return !ks.empty() && std::ranges::all_of(ks, [&](std::int64_t k) { return k > 0 && seen.insert(k).second; });
  };
  auto k = part("k", &O::k, "whole numbers, as in 1,5")
               .read_by(read_ks)
               .shown(text_of_ks)
               .must("be one number or more, each >= 1 and once", are_valid)
               .refuses({"0", "", "2,2"});
  k.default_text = "1,5";
  return with_names<O>(std::move(k), option("ignore_index", &O::ignore_index));
}

std::vector<Option<ExactMatchOptions>> exact_match_options() {
  return with_names<ExactMatchOptions>(option("ignore_index", &ExactMatchOptions::ignore_index));
}

}  // namespace

MulticlassFBetaScore::MulticlassFBetaScore(MulticlassFBetaOptions options)
    : MulticlassMetric("MulticlassFBetaScore", without_beta(options)),
      given_(checked("MulticlassFBetaScore", std::move(options), multiclass_f_beta_options())) {}
MulticlassFBetaScore::~MulticlassFBetaScore() = default;
std::shared_ptr<Metric> MulticlassFBetaScore::fresh() const { return std::make_shared<MulticlassFBetaScore>(given_); }
StateDict MulticlassFBetaScore::local_hparams() const { return describe(given_, multiclass_f_beta_options()); }
at::Tensor MulticlassFBetaScore::occurring(const at::Tensor& predicted, const at::Tensor& actual) const {
  return (actual + predicted).gt(0);
}
at::Tensor MulticlassFBetaScore::score(const Counts& counts) const {
  const double square = given_.beta * given_.beta;
  const at::Tensor whole = counts.predicted + counts.actual * square;
  return (counts.right * (1 + square) / whole).masked_fill(whole.eq(0), 0);
}

TopKAccuracy::TopKAccuracy(TopKAccuracyOptions options)
    : options_(checked("TopKAccuracy", std::move(options), top_k_accuracy_options())) {}
TopKAccuracy::~TopKAccuracy() = default;

void TopKAccuracy::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor& logits = pick(outputs, options_.output);
  const at::Tensor& target = batch.at(options_.target);
  const std::int64_t most = std::ranges::max(options_.k);
  const std::optional<TargetKind> kind = find_target_kind(logits, target);
  if (logits.dim() < 2 || kind != TargetKind::INDICES)
    throw DataError(name(), ": expected outputs [N, C, ...] and targets [N, ...] (classes), got ", logits.sizes(),
                    " and ", target.sizes());
  if (most > logits.size(1))
    throw DataError(name(), ": k is ", most, ", and the outputs have ", logits.size(1), " classes");
  const at::Tensor classes = whole_classes(name(), target);
  check_classes(classes, logits.size(1), options_.ignore_index, name());
  at::Tensor found = std::get<1>(logits.topk(most, 1)).eq(classes.unsqueeze(1));  // at most one of each sample
  if (options_.ignore_index) {
    const at::Tensor valid = not_ignored(classes, *options_.ignore_index);
    found.logical_and_(valid.unsqueeze(1));
    total_.add(valid.sum());
  } else {
    total_.add(classes.numel(), classes.device());
  }
  const at::Tensor right = found.transpose(0, 1).reshape({most, -1}).sum(1).cumsum(0);  // for 1 to `most`
  std::vector<at::Tensor> of_each;
  of_each.reserve(options_.k.size());
  for (const std::int64_t k : options_.k) of_each.push_back(right.select(0, k - 1));
  right_.add(at::stack(of_each));
}

at::Tensor TopKAccuracy::compute() const { return compute_values().select(0, 0); }
at::Tensor TopKAccuracy::compute_values() const {
  return (right_.value() / total_.value()).expand({static_cast<std::int64_t>(options_.k.size())});
}

std::vector<std::string> TopKAccuracy::value_names() const {
  std::vector<std::string> names;
  names.reserve(options_.k.size());
  for (const std::int64_t k : options_.k) names.push_back(join("top", k));
  return names;
}

void TopKAccuracy::reset() {
  right_.reset();
  total_.reset();
}

void TopKAccuracy::visit_sums(const VisitSum& visit) {
  visit("right", right_.tensor());
  visit("total", total_.tensor());
}

ExactMatch::ExactMatch(ExactMatchOptions options) : options_(named("ExactMatch", std::move(options))) {}
ExactMatch::~ExactMatch() = default;

void ExactMatch::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor& output = pick(outputs, options_.output);
  const at::Tensor target = whole_classes(name(), batch.at(options_.target));
  const bool is_whole = at::isIntegralType(output.scalar_type(), /*includeBool=*/true);
  const bool fits = is_whole ? output.sizes() == target.sizes()
                             : output.dim() >= 2 && find_target_kind(output, target) == TargetKind::INDICES;
  if (target.dim() < 1 || !fits)
    throw DataError(name(), ": expected logits [N, C, ...] or whole numbers [N, ...], and targets [N, ...], got ",
                    output.sizes(), " of type ", output.scalar_type(), " and ", target.sizes());
  if (target.size(0) == 0) return;
  at::Tensor right = (is_whole ? output : output.argmax(1)).eq(target).reshape({target.size(0), -1});
  if (!options_.ignore_index) {
    over_.add(right.all(1).sum());
    under_.add(target.size(0), target.device());
    return;
  }
  const at::Tensor valid = not_ignored(target, *options_.ignore_index).reshape(right.sizes());
  const at::Tensor counts = valid.any(1);
  over_.add(right.logical_or_(valid.logical_not()).all(1).logical_and_(counts).sum());
  under_.add(counts.sum());
}

StateDict MulticlassMetric::local_hparams() const { return describe(options_, multiclass_options()); }
StateDict TopKAccuracy::local_hparams() const { return describe(options_, top_k_accuracy_options()); }
StateDict ExactMatch::local_hparams() const { return describe(options_, exact_match_options()); }

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
Entry<Metrics> multiclass_f_beta_score() {
  return entry<MulticlassFBetaScore>("multiclass_f_beta_score", "Weighted harmonic mean of precision and recall",
                                     multiclass_f_beta_options());
}
Entry<Metrics> multiclass_specificity() {
  return entry<MulticlassSpecificity>("multiclass_specificity",
                                      "Share of other classes' targets that were not predicted as the class",
                                      specificity_options());
}
Entry<Metrics> top_k_accuracy() {
  return entry<TopKAccuracy>("top_k_accuracy", "Share of targets among the k highest outputs, for several k",
                             top_k_accuracy_options());
}
Entry<Metrics> exact_match() {
  return entry<ExactMatch>("exact_match", "Share of samples all of whose places are right", exact_match_options());
}
Entry<Metrics> multiclass_recall() {
  return entry<MulticlassRecall>("multiclass_recall", "Share of targets that were predicted, by another name",
                                 multiclass_options());
}

}  // namespace entries
}  // namespace composer::metrics
