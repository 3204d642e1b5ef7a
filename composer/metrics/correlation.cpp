#include "composer/metrics/correlation.h"

#include <limits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
#include "composer/metrics/predicted_classes.h"
#include "composer/metrics/rows.h"
#include "composer/metrics/sum.h"
#include "composer/util/loss.h"

namespace composer::metrics {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kMostRows = 256;  // that are kept before they are merged

// The sums in a row: of what they are for each output.
enum Place : std::int64_t { COUNT, OUTPUT_MEAN, TARGET_MEAN, OUTPUT_SQUARES, TARGET_SQUARES, PRODUCTS, ERRORS };

struct Pairs {
  at::Tensor output, target;  // float64, [N, outputs]
};

Pairs pairs(const std::string& metric, const at::Tensor& output, const at::Tensor& target,
            const std::vector<std::string>& output_names) {
  if (output.sizes() != target.sizes() || output.dim() < 1)
    throw DataError(metric, ": outputs and targets must have one shape, got ", output.sizes(), " and ", target.sizes());
  if (output.is_complex() || target.is_complex()) throw DataError(metric, ": outputs and targets must be real numbers");
  const std::int64_t rows = output.size(0), columns = rows == 0 ? 1 : output.numel() / rows;
  const auto named = static_cast<std::int64_t>(output_names.size());
  if (rows > 0 && named > 0 && named != columns)
    throw DataError(metric, ": output_names has ", named, " names, and the outputs ", output.sizes(), " are ", columns,
                    " for each sample");
  const auto flat = [&](const at::Tensor& all) { return all.to(at::kDouble).reshape({rows, columns}); };
  return {flat(output), flat(target)};
}

// Of differences from the first value, so that the mean of equal values is exactly this value.
at::Tensor mean_of(const at::Tensor& values) {
  const at::Tensor first = values.select(0, 0);
  return first + (values - first).mean(0);
}

at::Tensor row_of(const Pairs& pairs) {
  const auto& [x, y] = pairs;
  const at::Tensor x_mean = mean_of(x), y_mean = mean_of(y);
  const at::Tensor dx = x - x_mean, dy = y - y_mean;
  return at::stack({at::full({x.size(1)}, static_cast<double>(x.size(0)), x.options()), x_mean, y_mean,
                    dx.square().sum(0), dy.square().sum(0), (dx * dy).sum(0), (x - y).square().sum(0)})
      .unsqueeze(0);
}

// The row of all samples, [7, outputs].
at::Tensor merged(const at::Tensor& rows) {
  const auto of = [&](Place place) { return rows.select(1, place); };
  const at::Tensor count = of(COUNT), all = count.sum(0);
  const auto mean = [&](const at::Tensor& means) {  // as in mean_of()
    const at::Tensor first = means.select(0, 0);
    return first + (count * (means - first)).sum(0) / all;
  };
  const at::Tensor x = mean(of(OUTPUT_MEAN)), y = mean(of(TARGET_MEAN));
  const at::Tensor dx = of(OUTPUT_MEAN) - x, dy = of(TARGET_MEAN) - y;
  return at::stack({all, x, y, (of(OUTPUT_SQUARES) + count * dx.square()).sum(0),
                    (of(TARGET_SQUARES) + count * dy.square()).sum(0), (of(PRODUCTS) + count * dx * dy).sum(0),
                    of(ERRORS).sum(0)});
}

at::Tensor correlation_of(const at::Tensor& x_squares, const at::Tensor& y_squares, const at::Tensor& products) {
  return (products / x_squares.sqrt() / y_squares.sqrt()).clamp(-1, 1);
}

}  // namespace

MomentsMetric::~MomentsMetric() = default;

void MomentsMetric::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const Pairs all = pairs(name(), pick(outputs, output_name()), batch.at(target_name()), output_names());
  if (all.output.size(0) == 0) return;
  const at::Tensor row = row_of(all);
  if (!rows_.empty() && rows_.front().sizes().slice(1) != row.sizes().slice(1))
    throw DataError(name(), ": all batches must have as many outputs for each sample, got ", row.size(2), " after ",
                    rows_.front().size(2));
  rows_.push_back(row);
  if (rows_.size() >= kMostRows) rows_ = {merged(joined(rows_)).unsqueeze(0)};
}

MomentsMetric::Moments MomentsMetric::moments() const {
  const at::Tensor all = merged(joined(rows_));
  const auto of = [&](Place place) { return all.select(0, place); };
  return {all.select(0, COUNT).select(0, 0), of(OUTPUT_SQUARES), of(TARGET_SQUARES), of(PRODUCTS), of(ERRORS)};
}

at::Tensor MomentsMetric::compute() const {
  const at::NoGradGuard no_grad;
  if (rows_.empty()) return at::scalar_tensor(kUndefined, at::kDouble);
  const Moments all = moments();
  return average(score(all), all);
}

at::Tensor MomentsMetric::compute_values() const {
  const at::NoGradGuard no_grad;
  if (rows_.empty()) return at::full({static_cast<std::int64_t>(output_names().size())}, kUndefined, at::kDouble);
  return score(moments());
}

at::Tensor MomentsMetric::average(const at::Tensor& scores, const Moments&) const { return scores.mean(); }
void MomentsMetric::visit_rows(const VisitRows& visit) { visit("moments", rows_); }

namespace {

std::vector<Option<R2ScoreOptions>> r2_score_options() {
  using O = R2ScoreOptions;
  return with_names<O>(option("adjusted", &O::adjusted).at_least(0),
                       option("multioutput", &O::multioutput,
                              {{"uniform_average", MultiOutput::UNIFORM_AVERAGE},
                               {"variance_weighted", MultiOutput::VARIANCE_WEIGHTED}}),
                       option("output_names", &O::output_names));
}

std::vector<Option<CorrelationOptions>> correlation_options() {
  return with_names<CorrelationOptions>(option("output_names", &CorrelationOptions::output_names));
}

void check_output_names(const std::string& metric, const std::vector<std::string>& output_names) {
  if (!output_names.empty()) names_of_classes(metric, output_names, static_cast<std::int64_t>(output_names.size()));
}

}  // namespace

R2Score::R2Score(R2ScoreOptions options) : options_(checked("R2Score", std::move(options), r2_score_options())) {
  check_output_names(name(), options_.output_names);
}
R2Score::~R2Score() = default;

at::Tensor R2Score::score(const Moments& moments) const {
  const at::Tensor &errors = moments.squared_errors, &squares = moments.target_squares;
  const at::Tensor of_equal_targets = at::where(errors.eq(0), 1., 0.).to(at::kDouble);
  const at::Tensor scores =
      at::where(squares.eq(0).logical_and(errors.isnan().logical_not()), of_equal_targets, 1 - errors / squares);
  return scores.masked_fill(moments.count.lt(2), kUndefined);
}

at::Tensor R2Score::average(const at::Tensor& scores, const Moments& moments) const {
  const at::Tensor weights = moments.target_squares;
  const at::Tensor mean =
      options_.multioutput == MultiOutput::UNIFORM_AVERAGE ? scores.mean() : (scores * weights / weights.sum()).sum();
  if (options_.adjusted == 0) return mean;
  const at::Tensor free = moments.count - (options_.adjusted + 1);
  return at::where(free.gt(0), 1 - (1 - mean) * (moments.count - 1) / free, mean);
}

PearsonCorrCoef::PearsonCorrCoef(CorrelationOptions options) : options_(named("PearsonCorrCoef", std::move(options))) {
  check_output_names(name(), options_.output_names);
}
PearsonCorrCoef::~PearsonCorrCoef() = default;

at::Tensor PearsonCorrCoef::score(const Moments& moments) const {
  return correlation_of(moments.output_squares, moments.target_squares, moments.products);
}

SpearmanCorrCoef::SpearmanCorrCoef(CorrelationOptions options)
    : options_(named("SpearmanCorrCoef", std::move(options))) {
  check_output_names(name(), options_.output_names);
}
SpearmanCorrCoef::~SpearmanCorrCoef() = default;

void SpearmanCorrCoef::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const Pairs all = pairs(name(), pick(outputs, options_.output), batch.at(options_.target), options_.output_names);
  if (all.output.size(0) == 0) return;
  if (!rows_.empty() && rows_.front().size(2) != all.output.size(1))
    throw DataError(name(), ": all batches must have as many outputs for each sample, got ", all.output.size(1),
                    " after ", rows_.front().size(2));
  append_rows(rows_, at::stack({all.output, all.target}, 1));
}

at::Tensor SpearmanCorrCoef::scores() const {
  const at::NoGradGuard no_grad;
  const at::Tensor all = joined(rows_).permute({1, 2, 0}).contiguous();  // [2, outputs, N]
  const auto [sorted, order] = all.sort(-1);
  // Twice the mean rank of equal values: whole numbers, whose moments are exact.
  const at::Tensor twice = count_smaller(sorted) + count_not_larger(sorted) + 1;
  const at::Tensor deviations = (twice - (all.size(2) + 1)).to(at::kDouble);  // from the mean rank
  const at::Tensor ranks = deviations.new_zeros(deviations.sizes()).scatter_(-1, order, deviations);
  const at::Tensor x = ranks.select(0, 0), y = ranks.select(0, 1);
  return correlation_of(x.square().sum(-1), y.square().sum(-1), (x * y).sum(-1))
      .masked_fill(all.isnan().any(-1).any(0), kUndefined);
}

at::Tensor SpearmanCorrCoef::compute() const {
  return rows_.empty() ? at::scalar_tensor(kUndefined, at::kDouble) : scores().mean();
}

at::Tensor SpearmanCorrCoef::compute_values() const {
  if (rows_.empty())
    return at::full({static_cast<std::int64_t>(options_.output_names.size())}, kUndefined, at::kDouble);
  return scores();
}

void SpearmanCorrCoef::visit_rows(const VisitRows& visit) { visit("pairs", rows_); }

StateDict R2Score::local_hparams() const { return describe(options_, r2_score_options()); }
StateDict PearsonCorrCoef::local_hparams() const { return describe(options_, correlation_options()); }
StateDict SpearmanCorrCoef::local_hparams() const { return describe(options_, correlation_options()); }

namespace entries {

Entry<Metrics> r2_score() { return entry<R2Score>("r2_score", "Coefficient of determination", r2_score_options()); }
Entry<Metrics> pearson_corr_coef() {
  return entry<PearsonCorrCoef>("pearson_corr_coef", "Pearson's correlation", correlation_options());
}
Entry<Metrics> spearman_corr_coef() {
  return entry<SpearmanCorrCoef>("spearman_corr_coef", "Spearman's rank correlation", correlation_options());
}

}  // namespace entries
}  // namespace composer::metrics
