#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer::data {

enum class ColumnType : std::uint8_t { BOOL, INT64, FLOAT, DOUBLE, TEXT };

// Such as "INT64", as errors show it.
COMPOSER_EXPORT const char* name_of(ColumnType type);

// A column of UTF-8 texts, some of which may be missing. Copies share the texts.
class COMPOSER_EXPORT TextColumn {
 public:
  // The bytes of all texts, where each of them ends, and, unless it is empty, 1 for each that is missing.
  class Source {
   public:
    virtual ~Source();
    std::int64_t size = 0;
    const char* bytes = nullptr;
    const std::int64_t* ends = nullptr;
    const std::uint8_t* absent = nullptr;  // nullptr: none is missing
  };

  TextColumn() : TextColumn(std::vector<std::string>()) {}
  TextColumn(const std::vector<std::string>& texts);
  TextColumn(const std::vector<std::optional<std::string>>& texts);  // nullopt: missing
  TextColumn(std::initializer_list<const char*> texts);
  explicit TextColumn(std::shared_ptr<const Source> source) : source_(std::move(source)) {}

  std::int64_t size() const { return source_->size; }
  // The text of a row from 0 to size() - 1; empty if it is missing. Valid as long as a copy of this column.
  std::string_view operator[](std::int64_t row) const {
    const std::int64_t begin = row == 0 ? 0 : source_->ends[row - 1];
    return {source_->bytes + begin, static_cast<std::size_t>(source_->ends[row] - begin)};
  }
  bool is_missing(std::int64_t row) const { return source_->absent && source_->absent[row] != 0; }
  TextColumn rows(const at::Tensor& indices) const;  // as Table::rows()

 private:
  std::shared_ptr<const Source> source_;
};

// A column of numbers (a tensor [N] on the host of bool, int64, float or double; NaN is missing) or of texts.
class COMPOSER_EXPORT Column {
 public:
  // A tensor [N] or [N, 1]. Other integers become int64, and float16 and bfloat16 become float. Throws DataError.
  Column(const at::Tensor& numbers);
  // why_text: for a column that was expected to be of numbers, the cell that is none, for errors.
  Column(TextColumn texts, std::string why_text = {}) : values_(std::move(texts)), why_text_(std::move(why_text)) {}
  Column(const std::vector<std::string>& texts) : values_(TextColumn(texts)) {}
  Column(std::initializer_list<double> numbers);
  Column(std::initializer_list<const char*> texts) : values_(TextColumn(texts)) {}

  ColumnType type() const;
  std::int64_t size() const;
  bool is_text() const { return std::holds_alternative<TextColumn>(values_); }
  bool is_missing(std::int64_t row) const;
  const at::Tensor& tensor() const { return std::get<at::Tensor>(values_); }  // if it is of numbers
  const TextColumn& texts() const { return std::get<TextColumn>(values_); }   // if it is of texts
  const std::string& why_text() const { return why_text_; }
  Column rows(const at::Tensor& indices) const;  // as Table::rows()

 private:
  std::variant<at::Tensor, TextColumn> values_;
  std::string why_text_;
};

// One row of a table, by the names of its columns: Row{{"area", 120.0}, {"city", "Oslo"}, {"year", nullptr}}. nullptr:
// the cell is missing.
class COMPOSER_EXPORT Row {
 public:
  using Cell = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string>;
  struct Item {
    Item(std::string name, bool value) : name(std::move(name)), cell(value) {}
    // Any integer. Throws DataError for one that is above those of int64.
    template <std::integral Integer>
    requires(!std::same_as<Integer, bool>) Item(std::string name, Integer value)
        : name(std::move(name)), cell(static_cast<std::int64_t>(value)) {
      if (value > 0 && std::get<std::int64_t>(cell) < 0) fail_too_large();
    }
    Item(std::string name, double value) : name(std::move(name)), cell(value) {}
    Item(std::string name, const char* value) : name(std::move(name)), cell(std::string(value)) {}
    Item(std::string name, std::string_view value) : name(std::move(name)), cell(std::string(value)) {}
    Item(std::string name, std::string value) : name(std::move(name)), cell(std::move(value)) {}
    Item(std::string name, std::nullptr_t) : name(std::move(name)), cell(nullptr) {}
    std::string name;
    Cell cell;

   private:
    [[noreturn]] COMPOSER_EXPORT void fail_too_large() const;
  };
  Row(std::initializer_list<Item> items) : items_(items) {}
  explicit Row(std::vector<Item> items) : items_(std::move(items)) {}
  const std::vector<Item>& items() const { return items_; }

 private:
  std::vector<Item> items_;
};

// Named columns of equal length, in memory on the host. Copies share the columns.
class COMPOSER_EXPORT Table {
 public:
  Table() = default;
  Table(std::initializer_list<std::pair<std::string, Column>> columns);
  Table(const Row& row);
  // Each tensor [N] or [N, 1] becomes a column, and "x" [N, K] the columns "x_0" to "x_K-1". Throws DataError.
  explicit Table(const Batch& batch);

  std::int64_t rows() const { return rows_; }
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const;
  // These throw DataError, which lists the columns, for one that the table does not have.
  const Column& column(std::string_view name) const;
  ColumnType type(std::string_view name) const { return column(name).type(); }
  at::Tensor operator[](std::string_view name) const;    // the numbers [N]; throws DataError for texts
  const TextColumn& texts(std::string_view name) const;  // throws DataError for numbers
  at::Tensor missing(std::string_view name) const;       // bool [N]
  // int64 [N]: equal cells have equal numbers, which count from 0 in the order of their first rows; -1: missing.
  at::Tensor codes(std::string_view name) const;

  // Replaces the column of this name, or adds it at the end. Throws DataError if its length is not rows().
  void set(std::string_view name, Column column);
  Table select(const std::vector<std::string>& names) const;  // these columns, in this order
  Table drop(const std::vector<std::string>& names) const;    // all others
  Table rows(const at::Tensor& indices) const;  // int64 [M] or bool [rows()]; a negative index counts from the end
  Table rows(std::int64_t begin, std::int64_t end) const;
  // The columns as tensors [N], and as one tensor [N, names.size()] of float32.
  Batch batch(const std::vector<std::string>& names) const;
  at::Tensor matrix(const std::vector<std::string>& names) const;

  // The first rows as text, aligned under the names.
  std::string head(std::int64_t rows = 5) const;

 private:
  const Column* find(std::string_view name) const;
  [[noreturn]] void fail_missing(std::string_view name) const;

  std::vector<std::string> names_;
  std::vector<Column> columns_;
  std::int64_t rows_ = 0;
};

// Tables can be divided by split() and k_folds(), by the names of columns (composer/data/split.h).
COMPOSER_EXPORT std::int64_t num_rows(const Table& table);
COMPOSER_EXPORT Table subset(const Table& table, const at::Tensor& rows);
// Texts are numbered in the order of texts, so that dates such as 2024-01-31 are in the order of time; -1: missing.
COMPOSER_EXPORT at::Tensor column(const Table& table, const std::string& name);

}  // namespace composer::data
