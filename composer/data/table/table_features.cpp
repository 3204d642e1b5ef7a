#include "composer/data/table/table_features.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/util/exact_text.h"

namespace composer::data {
namespace {

std::vector<Option<TableFeaturesOptions>> table_features_options() {
  using O = TableFeaturesOptions;
  return all_options(
      option("target", &O::target), option("columns", &O::columns), option("ignore", &O::ignore),
      option("categorical", &O::categorical),
      option("numeric", &O::numeric,
             {{"standardize", Scaling::STANDARDIZE}, {"min_max", Scaling::MIN_MAX}, {"none", Scaling::NONE}}),
      option("categories", &O::categories, {{"one_hot", Encoding::ONE_HOT}, {"index", Encoding::INDEX}}),
      option("missing", &O::missing,
             {{"mean", Imputation::MEAN},
              {"median", Imputation::MEDIAN},
              {"constant", Imputation::CONSTANT},
              {"error", Imputation::ERROR}}),
      option("constant", &O::constant), option("missing_indicator", &O::missing_indicator),
      option("scale_target", &O::scale_target), option("max_categories", &O::max_categories).at_least(1));
}

bool is_one_of(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

bool all_missing(const Column& column) {
  for (std::int64_t row = 0; row < column.size(); ++row)
    if (!column.is_missing(row)) return false;
  return true;
}

// The numbers of a column, NaN where they are missing. A column of texts has none, so all its cells are missing.
at::Tensor doubles_of(const Column& column) {
  if (!column.is_text()) return column.tensor().to(at::kDouble).contiguous();
  return at::empty({column.size()}, at::kDouble).fill_(std::numeric_limits<double>::quiet_NaN());
}

// The cell as the text of a category: 3 and 3.0 are one.
class CategoryTexts {
 public:
  explicit CategoryTexts(const Column& column) : column_(column), is_bool_(column.type() == ColumnType::BOOL) {
    if (!column.is_text()) numbers_ = doubles_of(column);
  }
  std::string_view operator()(std::int64_t row) {
    if (column_.is_text()) return column_.texts()[row];
    const double number = numbers_.const_data_ptr<double>()[row];
    if (is_bool_) return number != 0 ? "true" : "false";
    constexpr double kMostExact = 9e15;
    text_ = number == std::floor(number) && std::abs(number) < kMostExact ? join(static_cast<std::int64_t>(number))
                                                                          : util::exact_text(number);
    return text_;
  }

 private:
  const Column& column_;
  bool is_bool_;
  at::Tensor numbers_;
  std::string text_;
};

// The place in the sorted list; -1: it is not there.
std::int64_t index_of(const std::vector<std::string>& categories, std::string_view text) {
  const auto found =
      std::ranges::lower_bound(categories, text, {}, [](const std::string& s) { return std::string_view(s); });
  return found != categories.end() && *found == text ? found - categories.begin() : -1;
}

double median_of(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::ranges::nth_element(numbers, middle);
  if (numbers.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(numbers.begin(), middle)) / 2;
}

struct MeanAndStddev {
  explicit MeanAndStddev(std::span<const double> numbers) {
    const auto count = static_cast<double>(numbers.size());
    for (const double number : numbers) mean += number / count;
    double squares = 0;
    for (const double number : numbers) squares += (number - mean) * (number - mean) / count;
    stddev = std::sqrt(squares);
  }
  double mean = 0, stddev = 0;
};

const char* kind_text(bool is_text) { return is_text ? "of texts" : "of numbers"; }

std::string options_text(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

void TableFeatures::Feature::visit_state(StateVisitor& visit) {
  visit("name", name);
  visit("is_text", is_text);
  visit("is_category", is_category);
  visit("has_missing", has_missing);
  visit("fill", fill);
  visit("shift", shift);
  visit("scale", scale);
  visit("categories", categories);
  if (visit.is_loading() && !std::ranges::is_sorted(categories))
    throw CheckpointError(visit.path(), ": the categories of the column \"", name, "\" are not sorted");
}

TableFeatures::TableFeatures(TableFeaturesOptions options)
    : options_(checked("TableFeatures", std::move(options), table_features_options())) {
  for (const std::string& name : options_.target) {
    if (is_one_of(options_.columns, name) || is_one_of(options_.ignore, name))
      throw ConfigError("TableFeatures: the column \"", name, "\" is a target, and cannot be in columns or ignore");
    if (std::ranges::count(options_.target, name) > 1)
      throw ConfigError("TableFeatures: the target \"", name, "\" is named twice");
  }
  for (const std::string& name : options_.columns) {
    if (is_one_of(options_.ignore, name))
      throw ConfigError("TableFeatures: the column \"", name, "\" is both in columns and in ignore");
    if (std::ranges::count(options_.columns, name) > 1)
      throw ConfigError("TableFeatures: the column \"", name, "\" is named twice (columns)");
  }
  if (!std::isfinite(options_.constant))
    throw ConfigError("TableFeatures: constant must be finite, got ", options_.constant);
}

TableFeatures::Feature TableFeatures::fitted(const Table& table, const std::string& name, Scaling scaling,
                                             bool target) const {
  const Column& column = table.column(name);
  Feature feature{.name = name, .is_text = column.is_text()};
  feature.is_category = feature.is_text || is_one_of(options_.categorical, name);
  std::vector<double> known;
  std::set<std::string, std::less<>> categories;
  CategoryTexts texts(column);
  const at::Tensor numbers = doubles_of(column);
  for (std::int64_t row = 0; row < column.size(); ++row) {
    if (column.is_missing(row)) {
      if (target || options_.missing == Imputation::ERROR)
        throw DataError("TableFeatures: the ", target ? "target" : "column", " \"", name, "\" is missing in row ", row,
                        target ? "; leave such rows out: table.rows(~table.missing(name))" : " (missing = ERROR)");
      feature.has_missing = true;
    } else if (!feature.is_category) {
      const double number = numbers.const_data_ptr<double>()[row];
      if (!std::isfinite(number))
        throw DataError("TableFeatures: \"", name, "\" is ", number, " in row ", row, "; numbers must be finite");
      known.push_back(number);
    } else if (const std::string_view text = texts(row); categories.find(text) == categories.end()) {
      categories.emplace(text);
      if (static_cast<std::int64_t>(categories.size()) > options_.max_categories)
        throw DataError("TableFeatures: the column \"", name, "\" has more than ", options_.max_categories,
                        " different texts, such as \"", text,
                        "\"; name it in .ignore if it is none of categories, or raise ", "max_categories",
                        column.why_text().empty() ? "" : " (it is of texts because ", column.why_text(),
                        column.why_text().empty() ? "" : ")");
    }
  }
  feature.categories.assign(categories.begin(), categories.end());
  if (known.empty()) {
    if (!feature.is_category && options_.missing != Imputation::CONSTANT)
      throw DataError("TableFeatures: all cells of the column \"", name, "\" are missing; name it in .ignore");
    feature.fill = options_.constant;
    return feature;
  }
  const MeanAndStddev of(known);
  switch (options_.missing) {
    case Imputation::MEAN:
      feature.fill = of.mean;
      break;
    case Imputation::MEDIAN:
      feature.fill = median_of(known);
      break;
    default:
      feature.fill = options_.constant;
  }
  if (column.type() == ColumnType::BOOL && !target) return feature;  // is 0 or 1 already
  if (scaling == Scaling::STANDARDIZE) {
    feature.shift = of.mean;
    feature.scale = of.stddev;
  } else if (scaling == Scaling::MIN_MAX) {
    const auto [least, most] = std::ranges::minmax(known);
    feature.shift = least;
    feature.scale = most - least;
  }
  // Of equal numbers, the mean may differ from them in the last bits.
  const double tiny = std::abs(feature.shift) * std::numeric_limits<double>::epsilon() * 8;
  if (!(feature.scale > tiny) || !std::isfinite(feature.scale)) feature.scale = 1;
  return feature;
}

void TableFeatures::fit(const Table& table) {
  if (table.rows() == 0) throw DataError("TableFeatures: the table has no rows");
  for (const auto& [names, option] :
       {std::pair(&options_.target, "target"), std::pair(&options_.columns, "columns"),
        std::pair(&options_.ignore, "ignore"), std::pair(&options_.categorical, "categorical")})
    for (const std::string& name : *names)
      if (!table.contains(name))
        throw DataError("TableFeatures: the table has no column \"", name, "\" (", option, "); it has ",
                        options_text(table.names()));
  std::vector<Feature> features, targets;
  for (const std::string& name : options_.columns.empty() ? table.names() : options_.columns)
    if (!is_one_of(options_.target, name) && !is_one_of(options_.ignore, name))
      features.push_back(fitted(table, name, options_.numeric, false));
  if (features.empty()) throw DataError("TableFeatures: no column is left for the input");
  for (const std::string& name : options_.target) {
    targets.push_back(fitted(table, name, options_.scale_target ? Scaling::STANDARDIZE : Scaling::NONE, true));
    if (targets.back().is_category && options_.target.size() > 1)
      throw DataError("TableFeatures: the target \"", name,
                      "\" is of categories; there can be one such target alone, or ", "several of numbers");
  }
  features_ = std::move(features);
  targets_ = std::move(targets);
  fitted_ = true;
}

void TableFeatures::require_fitted(const char* what) const {
  if (!fitted_) throw DataError("TableFeatures: ", what, " before fit()");
}

Batch TableFeatures::apply(const Table& table) const {
  require_fitted("apply()");
  for (const Feature& feature : features_) {
    if (!table.contains(feature.name))
      throw DataError("TableFeatures: the table has no column \"", feature.name, "\", which was ",
                      kind_text(feature.is_text), " in fit(); it has ", options_text(table.names()));
    const Column& column = table.column(feature.name);
    if (column.is_text() != feature.is_text && !all_missing(column))
      throw DataError("TableFeatures: the column \"", feature.name, "\" is ", kind_text(column.is_text()), ", and was ",
                      kind_text(feature.is_text), " in fit()", column.why_text().empty() ? "" : ": ",
                      column.why_text());
  }
  Batch batch;
  apply_input(table, batch);
  bool has_targets = !targets_.empty();
  for (const Feature& target : targets_) has_targets &= table.contains(target.name);
  if (has_targets) apply_target(table, batch);
  return batch;
}

void TableFeatures::apply_input(const Table& table, Batch& batch) const {
  const std::int64_t rows = table.rows();
  const auto width = static_cast<std::int64_t>(feature_names().size());
  const auto indices = static_cast<std::int64_t>(cardinalities().size());
  at::Tensor input = at::zeros({rows, width}, at::kFloat), category = at::zeros({rows, indices}, at::kLong);
  auto* const inputs = input.mutable_data_ptr<float>();
  auto* const numbers_of_categories = category.mutable_data_ptr<std::int64_t>();
  const auto fail_missing = [&](const Feature& feature, std::int64_t row) {
    if (options_.missing == Imputation::ERROR)
      throw DataError("TableFeatures: the column \"", feature.name, "\" is missing in row ", row, " (missing = ERROR)");
  };
  std::int64_t at = 0;
  for (const Feature& feature : features_) {
    if (feature.is_category) continue;
    const at::Tensor column = doubles_of(table.column(feature.name));
    const auto* const values = column.const_data_ptr<double>();
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool missing = std::isnan(values[row]);
      if (missing) fail_missing(feature, row);
      inputs[row * width + at] =
          static_cast<float>(((missing ? feature.fill : values[row]) - feature.shift) / feature.scale);
    }
    ++at;
  }
  for (const Feature& feature : features_) {
    if (!options_.missing_indicator || !feature.has_missing) continue;
    const Column& column = table.column(feature.name);
    for (std::int64_t row = 0; row < rows; ++row) inputs[row * width + at] = column.is_missing(row) ? 1.F : 0.F;
    ++at;
  }
  std::int64_t number = 0;
  for (const Feature& feature : features_) {
    if (!feature.is_category) continue;
    const Column& column = table.column(feature.name);
    CategoryTexts texts(column);
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool missing = column.is_missing(row);
      if (missing) fail_missing(feature, row);
      const std::int64_t index = missing ? -1 : index_of(feature.categories, texts(row));
      if (options_.categories == Encoding::INDEX)
        numbers_of_categories[row * indices + number] = index + 1;
      else if (index >= 0)
        inputs[row * width + at + index] = 1;
    }
    if (options_.categories == Encoding::INDEX)
      ++number;
    else
      at += static_cast<std::int64_t>(feature.categories.size());
  }
  if (width > 0) batch.set("input", input);
  if (indices > 0) batch.set("category", category);
}

void TableFeatures::apply_target(const Table& table, Batch& batch) const {
  const std::int64_t rows = table.rows(), width = static_cast<std::int64_t>(targets_.size());
  const auto fail = [](const Feature& target, std::int64_t row, const std::string& what) {
    throw DataError("TableFeatures: the target \"", target.name, "\" ", what, " in row ", row);
  };
  if (targets_.front().is_category) {
    const Feature& target = targets_.front();
    const Column& column = table.column(target.name);
    at::Tensor classes = at::empty({rows}, at::kLong);
    CategoryTexts texts(column);
    for (std::int64_t row = 0; row < rows; ++row) {
      if (column.is_missing(row)) fail(target, row, "is missing");
      const std::string_view text = texts(row);
      const std::int64_t index = index_of(target.categories, text);
      if (index < 0) fail(target, row, join("is \"", text, "\", which fit() has not seen,"));
      classes.mutable_data_ptr<std::int64_t>()[row] = index;
    }
    batch.set("target", classes);
    return;
  }
  at::Tensor numbers = at::empty({rows, width}, at::kFloat);
  for (std::int64_t k = 0; k < width; ++k) {
    const Feature& target = targets_[static_cast<std::size_t>(k)];
    if (table.column(target.name).is_text())
      throw DataError("TableFeatures: the target \"", target.name, "\" is of texts, and was of numbers in fit()",
                      table.column(target.name).why_text().empty() ? "" : ": ", table.column(target.name).why_text());
    const at::Tensor column = doubles_of(table.column(target.name));
    for (std::int64_t row = 0; row < rows; ++row) {
      const double value = column.const_data_ptr<double>()[row];
      if (std::isnan(value)) fail(target, row, "is missing");
      numbers.mutable_data_ptr<float>()[row * width + k] = static_cast<float>((value - target.shift) / target.scale);
    }
  }
  batch.set("target", numbers);
}

at::Tensor TableFeatures::inverse_target(const at::Tensor& scaled) const {
  require_fitted("inverse_target()");
  if (targets_.empty() || targets_.front().is_category)
    throw DataError("TableFeatures: inverse_target() needs targets that are numbers", targets_.empty() ? "" : ", and ",
                    targets_.empty() ? "" : targets_.front().name, targets_.empty() ? "" : " is of categories");
  const auto width = static_cast<std::int64_t>(targets_.size());
  if (scaled.dim() == 0 || (scaled.size(-1) != width && !(width == 1 && scaled.dim() == 1)))
    throw DataError("TableFeatures: inverse_target() takes tensors [N, ", width, "], got ", scaled.sizes());
  std::vector<double> shifts, scales;
  for (const Feature& target : targets_) {
    shifts.push_back(target.shift);
    scales.push_back(target.scale);
  }
  const auto options = at::TensorOptions().dtype(at::kDouble).device(scaled.device());
  return scaled.to(at::kDouble)
      .mul(at::tensor(scales, at::kDouble).to(options))
      .add(at::tensor(shifts, at::kDouble).to(options))
      .to(scaled.scalar_type());
}

Outputs TableFeatures::undo(Outputs outputs) const {
  const bool is_scaled = options_.scale_target && !targets_.empty() && !targets_.front().is_category;
  if (!is_scaled || outputs.size() != 1) return outputs;
  const std::string name = outputs.begin()->first;
  outputs.set(name, inverse_target(outputs.only()));
  return outputs;
}

std::vector<std::string> TableFeatures::feature_names() const {
  std::vector<std::string> names;
  for (const Feature& feature : features_)
    if (!feature.is_category) names.push_back(feature.name);
  for (const Feature& feature : features_)
    if (options_.missing_indicator && feature.has_missing) names.push_back(feature.name + " is missing");
  for (const Feature& feature : features_)
    if (feature.is_category && options_.categories == Encoding::ONE_HOT)
      for (const std::string& text : feature.categories) names.push_back(feature.name + "=" + text);
  return names;
}

const std::vector<std::string>& TableFeatures::classes() const {
  static const std::vector<std::string> kNone;
  return targets_.empty() ? kNone : targets_.front().categories;
}

std::vector<std::int64_t> TableFeatures::cardinalities() const {
  std::vector<std::int64_t> sizes;
  for (const Feature& feature : features_)
    if (feature.is_category && options_.categories == Encoding::INDEX)
      sizes.push_back(static_cast<std::int64_t>(feature.categories.size()) + 1);
  return sizes;
}

void TableFeatures::visit_state(StateVisitor& visit) {
  visit("target", options_.target);
  visit("columns", options_.columns);
  visit("ignore", options_.ignore);
  visit("categorical", options_.categorical);
  visit("numeric", options_.numeric);
  visit("encoding", options_.categories);
  visit("missing", options_.missing);
  visit("constant", options_.constant);
  visit("missing_indicator", options_.missing_indicator);
  visit("scale_target", options_.scale_target);
  visit("max_categories", options_.max_categories);
  visit("fitted", fitted_);
  visit("features", features_);
  visit("targets", targets_);
  if (visit.is_loading() && (options_.numeric > Scaling::NONE || options_.categories > Encoding::INDEX ||
                             options_.missing > Imputation::ERROR))
    throw CheckpointError(visit.path(),
                          ": an option of the table's features has a value that this version does not know");
}

}  // namespace composer::data
