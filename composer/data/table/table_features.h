#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/state_dict.h"
#include "composer/core/tensors.h"
#include "composer/data/preprocessing.h"
#include "composer/data/table/table.h"

namespace composer::data {

// How columns of numbers are scaled: to mean 0 and standard deviation 1, to [0, 1], or not.
enum class Scaling : std::uint8_t { STANDARDIZE, MIN_MAX, NONE };
// What becomes of a column of categories: numbers 0 and 1, one for each category, in "input"; or its index in
// "category", for an embedding.
enum class Encoding : std::uint8_t { ONE_HOT, INDEX };
// What a missing number is replaced by, before scaling: the mean or median of those that are known, or a constant.
enum class Imputation : std::uint8_t { MEAN, MEDIAN, CONSTANT, ERROR };

struct TableFeaturesOptions {
  std::vector<std::string> target = {};   // the columns to predict
  std::vector<std::string> columns = {};  // the columns of the input; empty: all except target and ignore
  std::vector<std::string> ignore = {};   // columns that are not used, such as an identifier
  // Columns of numbers that are categories, also targets. Columns of texts always are.
  std::vector<std::string> categorical = {};
  // Numbers get mean 0 and standard deviation 1. MIN_MAX: the range from 0 to 1; NONE: they stay as they are.
  Scaling numeric = Scaling::STANDARDIZE;
  // Each category is a column of zeros and ones in "input". INDEX: an index in "category", for an embedding.
  Encoding categories = Encoding::ONE_HOT;
  // Replaces a missing number, before scaling, by the mean of the known ones, or by MEDIAN or CONSTANT. ERROR: throws.
  Imputation missing = Imputation::MEAN;
  double constant = 0;  // for Imputation::CONSTANT
  // Adds an input for each column with missing cells in the training data: 1 where a cell is missing.
  bool missing_indicator = false;
  bool scale_target = false;           // standardizes targets, which must be numbers; inverse_target() undoes it
  std::int64_t max_categories = 1000;  // more categories in a column are an error: it is probably not categorical
};

// Turns the columns of a table into tensors for a model:
//
//   data::TableFeatures features({.target = {"price"}});
//   features.fit(train);
//   auto loader = data::in_memory(features.apply(train), {.batch_size = 32});
//
// "input" is float [N, F]: the columns of numbers, then the indicators of their missing cells, then the one-hot
// columns; it is left out if there are none. With Encoding::INDEX, "category" is int64 [N, C], where 0 stands for a
// text that fit() has not seen, or a missing one; in one-hot columns such a text has zeros alone. "target" is float [N,
// K] for columns of numbers, and int64 [N], the index of a class in classes(), for one column of categories.
class COMPOSER_EXPORT TableFeatures final : public Preprocessing {
 public:
  explicit TableFeatures(TableFeaturesOptions options = {});  // throws ConfigError

  // Takes means, categories and other values from the rows of the training data alone. Throws DataError. Warns of a
  // column of texts most of which are numbers.
  void fit(const Table& table);

  // Throws DataError, which names the column and the row: for a column that is missing or that is of numbers, and of
  // texts in fit(), or the other way round; for a number that is infinite; for a target that is missing or unknown;
  // with Imputation::ERROR, for a missing cell. A table without all of the targets' columns, as at prediction, gives a
  // batch without "target".
  Batch apply(const Table& table) const;
  Batch apply(const Row& row) const { return apply(Table(row)); }  // of one sample
  Batch apply(const Batch& raw) const override { return apply(Table(raw)); }

  // float [N, K] or [N], as a model predicts it, to the numbers of the table. Throws DataError for another shape.
  at::Tensor inverse_target(const at::Tensor& scaled) const;

  // As inverse_target(), for a model with one output, if .scale_target is set.
  Outputs undo(Outputs outputs) const override;
  std::vector<std::string> class_names() const override { return classes(); }

  std::vector<std::string> feature_names() const;   // of the columns of "input", such as "area" and "city=Oslo"
  const std::vector<std::string>& classes() const;  // of the target, sorted by text or by number; empty if it is none
  std::vector<std::int64_t> cardinalities() const;  // indices of each column of "category": for embeddings
  // CsvOptions::types for another file, so that the columns of the input are read as fit() has seen them. Left out are
  // those of booleans, and those of numbers that are categories, whose types may be found in each file.
  std::map<std::string, ColumnType> types() const;
  bool is_fitted() const { return fitted_; }

  std::string name() const override { return "table"; }
  void visit_state(StateVisitor& visit) override;

 private:
  // A column of the table, as fit() has seen it.
  struct Feature {
    std::string name;
    ColumnType type = ColumnType::DOUBLE;
    bool is_category = false, has_missing = false;
    double fill = 0, shift = 0, scale = 1;  // of a number: (x - shift) / scale
    std::vector<std::string> categories;
    bool is_text() const { return type == ColumnType::TEXT; }
    void visit_state(StateVisitor& visit);
    void check(const std::string& path) const;
  };
  Feature fitted(const Table& table, const std::string& name, Scaling scaling, bool target) const;
  void apply_input(const Table& table, Batch& batch) const;
  void apply_target(const Table& table, Batch& batch) const;
  void require_fitted(const char* what) const;
  void visit_fields(StateVisitor& visit);
  void check_loaded(const std::string& path) const;

  TableFeaturesOptions options_;
  bool fitted_ = false;
  std::vector<Feature> features_, targets_;
};

}  // namespace composer::data
