#include "composer/data/table/table_features.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <unordered_map>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/table/csv_columns.h"
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

std::string category_text(double number) {
  constexpr double kEndOfInt64 = 9223372036854775808.0;
  const bool is_int = number == std::floor(number) && std::abs(number) < kEndOfInt64;
  return is_int ? join(static_cast<std::int64_t>(number)) : util::exact_text(number);
}

// The double that has the digits of a float: of 0.1F it is 0.1.
double double_of(float number) {
  char digits[32];
  double wide = number;
  std::from_chars(digits, std::to_chars(digits, digits + sizeof digits, number).ptr, wide);
  return wide;
}

// The cell as the text of a category. It does not depend on the type of the numbers, which may be another one in
// another file: 3 and 3.0 are one, and so are true and 1, because booleans with missing cells are doubles.
class CategoryTexts {
 public:
  explicit CategoryTexts(const Column& column) : column_(column), type_(column.type()) {}

  std::string_view operator()(std::int64_t row) {
    switch (type_) {
      case ColumnType::TEXT:
        return column_.texts()[row];
      case ColumnType::BOOL:
        return column_.tensor().const_data_ptr<bool>()[row] ? "1" : "0";
      case ColumnType::INT64:
        text_ = join(column_.tensor().const_data_ptr<std::int64_t>()[row]);
        break;
      case ColumnType::FLOAT:
        text_ = category_text(double_of(column_.tensor().const_data_ptr<float>()[row]));
        break;
      case ColumnType::DOUBLE:
        text_ = category_text(column_.tensor().const_data_ptr<double>()[row]);
        break;
    }
    return text_;
  }

 private:
  const Column& column_;
  ColumnType type_;
  std::string text_;
};

// The places of texts in a list.
class CategoryPlaces {
 public:
  explicit CategoryPlaces(const std::vector<std::string>& categories) {
    for (const std::string& text : categories) places_.emplace(text, static_cast<std::int64_t>(places_.size()));
  }
  std::int64_t operator()(std::string_view text) const {  // -1: it is not there
    const auto found = places_.find(text);
    return found == places_.end() ? -1 : found->second;
  }

 private:
  std::unordered_map<std::string_view, std::int64_t> places_;
};

// The order of the numbers that two texts of categories stand for.
bool is_smaller_number(const std::string& a, const std::string& b) {
  const auto integer = [](const std::string& text, std::int64_t& value) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec == std::errc() && result.ptr == text.data() + text.size();
  };
  std::int64_t int_a = 0, int_b = 0;
  if (integer(a, int_a) && integer(b, int_b)) return int_a < int_b;
  return detail::csv_number(a).value_or(0) < detail::csv_number(b).value_or(0);
}

// A column of numbers with a few other cells is one of texts, and would become a category for each of its numbers.
void warn_of_numbers(const std::string& name, const Column& column, std::size_t categories) {
  if (column.why_text().empty()) return;
  std::int64_t known = 0, numbers = 0;
  for (std::int64_t row = 0; row < column.size(); ++row) {
    if (column.is_missing(row)) continue;
    ++known;
    if (detail::csv_number(column.texts()[row])) ++numbers;
  }
  if (2 * numbers > known)
    warn(join("TableFeatures: the column \"", name, "\" is of texts, and becomes ", categories, " categories, but ",
              numbers, " of its ", known, " cells are numbers: ", column.why_text(),
              "; if that stands for a missing cell, add it to CsvOptions::missing; if these are categories, name the "
              "column in .categorical"));
}

// The number as the model gets it.
float scaled_number(const std::string& name, double number, double shift, double scale, std::int64_t row) {
  const double scaled = (number - shift) / scale;
  if (std::abs(scaled) <= std::numeric_limits<float>::max()) return static_cast<float>(scaled);
  throw DataError("TableFeatures: \"", name, "\" is ", number, " in row ", row,
                  std::isfinite(number) ? "; when it is scaled, it must be within the range of float32"
                                        : "; numbers must be finite");
}

double median_of(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::ranges::nth_element(numbers, middle);
  if (numbers.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(numbers.begin(), middle)) / 2;
}

struct Moments {
  explicit Moments(std::span<const double> numbers) : least(numbers[0]), most(numbers[0]) {
    const auto count = static_cast<double>(numbers.size());
    for (const double number : numbers) {
      mean += number;
      least = std::min(least, number);
      most = std::max(most, number);
    }
    mean /= count;
    if (!std::isfinite(mean)) {  // the sum overflows
      mean = 0;
      for (const double number : numbers) mean += number / count;
    }
    double rest = 0;  // what rounding has lost
    for (const double number : numbers) rest += number - mean;
    if (std::isfinite(rest)) mean += rest / count;
    if (least == most) mean = least;
    double squares = 0;
    for (const double number : numbers) squares += (number - mean) * (number - mean) / count;
    stddev = std::sqrt(squares);
    // The deviations of nearly equal numbers are rounding errors: what scikit-learn takes for a constant column.
    constexpr double kFew = 8;
    const double errors = std::max(count, kFew) * std::numeric_limits<double>::epsilon();
    if (least == most || !(stddev > std::abs(mean) * errors) || !std::isfinite(stddev)) stddev = 1;
    range = most - least;
    if (!(range > std::max(std::abs(least), std::abs(most)) * kFew * std::numeric_limits<double>::epsilon()) ||
        !std::isfinite(range))
      range = 1;
  }
  double mean = 0, least, most;
  double stddev = 1, range = 1;  // most - least; both 1 for numbers that are equal, by which they are divided
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
  visit("type", type);
  visit("is_category", is_category);
  visit("has_missing", has_missing);
  visit("fill", fill);
  visit("shift", shift);
  visit("scale", scale);
  visit("categories", categories);
}

// Of a file, which may be damaged.
void TableFeatures::Feature::check(const std::string& path) const {
  const auto fail = [&](const char* what) {
    throw CheckpointError(path, ": the column \"", name, "\" of the table's features ", what);
  };
  if (type > ColumnType::TEXT) fail("has a type that this version does not know");
  if (is_text() && !is_category) fail("is of texts, and of no categories");
  if (!std::isfinite(fill) || !std::isfinite(shift) || !std::isfinite(scale) || !(scale > 0))
    fail("has a scale that is not > 0, or another number that is not finite");
  if (std::set<std::string_view>(categories.begin(), categories.end()).size() != categories.size())
    fail("has a category twice");
}

TableFeatures::TableFeatures(TableFeaturesOptions options)
    : options_(checked("TableFeatures", std::move(options), table_features_options())) {
  for (const std::string& name : options_.target) {
    if (is_one_of(options_.columns, name) || is_one_of(options_.ignore, name))
      throw ConfigError("TableFeatures: the column \"", name, "\" is a target, and cannot be in columns or ignore");
    if (std::ranges::count(options_.target, name) > 1)
      throw ConfigError("TableFeatures: the target \"", name, "\" is named twice");
    if (options_.scale_target && is_one_of(options_.categorical, name))
      throw ConfigError("TableFeatures: the target \"", name, "\" is in categorical, so it becomes classes, and ",
                        "scale_target is for numbers; leave out one of the two");
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
  Feature feature{.name = name, .type = column.type()};
  const bool named = is_one_of(options_.categorical, name);
  feature.is_category = feature.is_text() || named;
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
  if (!feature.is_text()) std::ranges::sort(feature.categories, is_smaller_number);
  if (feature.is_text() && !named) warn_of_numbers(name, column, categories.size());
  if (known.empty()) {
    if (!feature.is_category && options_.missing != Imputation::CONSTANT)
      throw DataError("TableFeatures: all cells of the column \"", name, "\" are missing; name it in .ignore");
    feature.fill = options_.constant;
    return feature;
  }
  const Moments of(known);
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
    feature.shift = of.least;
    feature.scale = of.range;
  }
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
  for (const std::string& name : options_.target) {
    const Column& column = table.column(name);
    if (!options_.scale_target || !column.is_text()) continue;
    throw DataError("TableFeatures: the target \"", name, "\" is of texts, which become classes, and scale_target is ",
                    "for numbers; leave out scale_target if it is a class",
                    column.why_text().empty() ? "" : ", or make its cells numbers: ", column.why_text());
  }
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
                      kind_text(feature.is_text()), " in fit(); it has ", options_text(table.names()));
    const Column& column = table.column(feature.name);
    if (column.is_text() != feature.is_text() && !all_missing(column))
      throw DataError("TableFeatures: the column \"", feature.name, "\" is ", kind_text(column.is_text()), ", and was ",
                      kind_text(feature.is_text()), " in fit()", column.why_text().empty() ? "" : ": ",
                      column.why_text());
  }
  Batch batch;
  apply_input(table, batch);
  const Feature *there = nullptr, *not_there = nullptr;
  for (const Feature& target : targets_) (table.contains(target.name) ? there : not_there) = &target;
  if (there && not_there)
    throw DataError("TableFeatures: the table has the target \"", there->name, "\", and not the target \"",
                    not_there->name, "\"; it has ", options_text(table.names()));
  if (there) apply_target(table, batch);
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
          scaled_number(feature.name, missing ? feature.fill : values[row], feature.shift, feature.scale, row);
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
    const CategoryPlaces place_of(feature.categories);
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool missing = column.is_missing(row);
      if (missing) fail_missing(feature, row);
      const std::int64_t index = missing ? -1 : place_of(texts(row));
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
    const CategoryPlaces place_of(target.categories);
    for (std::int64_t row = 0; row < rows; ++row) {
      if (column.is_missing(row)) fail(target, row, "is missing");
      const std::string_view text = texts(row);
      const std::int64_t index = place_of(text);
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
      numbers.mutable_data_ptr<float>()[row * width + k] =
          scaled_number(target.name, value, target.shift, target.scale, row);
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

std::map<std::string, ColumnType> TableFeatures::types() const {
  std::map<std::string, ColumnType> types;
  for (const Feature& feature : features_)
    if (feature.is_text())
      types.emplace(feature.name, ColumnType::TEXT);
    else if (!feature.is_category && feature.type != ColumnType::BOOL)
      types.emplace(feature.name, ColumnType::DOUBLE);  // which INT64 with missing cells would become
  return types;
}

// What is loaded replaces the features when all of it has been found to be right.
void TableFeatures::visit_state(StateVisitor& visit) {
  TableFeatures loaded = *this;
  loaded.visit_fields(visit);
  if (!visit.is_loading()) return;
  loaded.check_loaded(visit.path());
  *this = std::move(loaded);
}

void TableFeatures::check_loaded(const std::string& path) const {
  if (options_.numeric > Scaling::NONE || options_.categories > Encoding::INDEX || options_.missing > Imputation::ERROR)
    throw CheckpointError(path, ": an option of the table's features has a value that this version does not know");
  try {
    const TableFeatures possible(options_);
  } catch (const ConfigError& error) {
    throw CheckpointError(path, ": ", error.what());
  }
  std::vector<std::string> targets;
  std::set<std::string_view> names;
  for (const std::vector<Feature>* const list : {&features_, &targets_})
    for (const Feature& feature : *list) {
      feature.check(path);
      if (!names.insert(feature.name).second)
        throw CheckpointError(path, ": the table's features have two columns \"", feature.name, '"');
    }
  for (const Feature& target : targets_) {
    targets.push_back(target.name);
    if (target.is_category && targets_.size() > 1)
      throw CheckpointError(path, ": the target \"", target.name, "\" is of categories, and not the only one");
  }
  if (fitted_ == features_.empty() || (fitted_ && targets != options_.target))
    throw CheckpointError(path, ": the table's features are not those that the options name");
}

void TableFeatures::visit_fields(StateVisitor& visit) {
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
}

}  // namespace composer::data
