#include "composer/data/table/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>

#include "composer/core/error.h"
#include "composer/util/text_table.h"
#include "composer/util/utf8.h"

namespace composer::data {
namespace {

class OwnTexts final : public TextColumn::Source {
 public:
  void add(std::string_view text, bool missing) {
    text_ += text;
    ends_.push_back(static_cast<std::int64_t>(text_.size()));
    absent_.push_back(missing ? 1 : 0);
    any_missing_ |= missing;
  }
  void reserve(std::size_t rows, std::size_t bytes) {
    text_.reserve(bytes);
    ends_.reserve(rows);
    absent_.reserve(rows);
  }
  void finish() {
    size = static_cast<std::int64_t>(ends_.size());
    bytes = text_.data();
    ends = ends_.data();
    absent = any_missing_ ? absent_.data() : nullptr;
  }

 private:
  std::string text_;
  std::vector<std::int64_t> ends_;
  std::vector<std::uint8_t> absent_;
  bool any_missing_ = false;
};

template <class Texts, class Read>
std::shared_ptr<const TextColumn::Source> own_texts(const Texts& texts, const Read& read) {
  auto source = std::make_shared<OwnTexts>();
  for (const auto& text : texts) {
    const std::optional<std::string_view> value = read(text);
    if (value && !util::is_utf8(*value)) throw DataError("a text of a column is not UTF-8: ", util::valid_utf8(*value));
    source->add(value.value_or(""), !value);
  }
  source->finish();
  return source;
}

// Row indices of `what`, a table or column of `size` rows, as int64 [M] from 0 on, of a mask or of such as
// Table::rows() takes.
at::Tensor row_numbers(const char* who, const char* what, const at::Tensor& given, std::int64_t size) {
  if (!given.defined()) throw DataError(who, ": the indices are an undefined tensor");
  at::Tensor index = given.cpu();
  if (index.dim() != 1 || (index.scalar_type() != at::kLong && index.scalar_type() != at::kBool))
    throw DataError(who, ": expected a tensor [M] of int64, or [", size, "] of bool, got ", index.sizes(), " of ",
                    index.scalar_type());
  if (index.scalar_type() == at::kBool) {
    if (index.size(0) != size)
      throw DataError(who, ": a mask of ", index.size(0), " values, and the ", what, " has ", size, " rows");
    index = index.nonzero().squeeze(1);
  }
  index = index.contiguous();
  const auto* const row = index.const_data_ptr<std::int64_t>();
  bool from_end = false;
  for (std::int64_t i = 0; i < index.size(0); ++i) {
    from_end |= row[i] < 0;
    if (row[i] < -size || row[i] >= size)
      throw DataError(who, ": index ", row[i], " at place ", i, ", and the ", what, " has ", size, " rows");
  }
  if (!from_end) return index;
  index = index.clone();
  auto* const counted = index.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < index.size(0); ++i)
    if (counted[i] < 0) counted[i] += size;
  return index;
}

at::Tensor number_column(const at::Tensor& given) {
  if (!given.defined()) throw DataError("a column of a table is an undefined tensor");
  if (given.layout() != at::kStrided || given.is_complex())
    throw DataError("a column of a table must be a dense tensor of real numbers, got ", given.toString());
  at::Tensor column = given.detach().cpu();
  if (column.dim() == 2 && column.size(1) == 1) column = column.squeeze(1);
  if (column.dim() != 1) throw DataError("a column of a table must have the shape [N] or [N, 1], got ", column.sizes());
  switch (column.scalar_type()) {
    case at::kBool:
    case at::kLong:
    case at::kFloat:
    case at::kDouble:
      break;
    default:
      column = column.to(column.is_floating_point() ? at::kFloat : at::kLong);
  }
  column = column.contiguous();
  if (given.scalar_type() == at::kUInt64)
    for (std::int64_t row = 0; row < column.size(0); ++row)
      if (column.const_data_ptr<std::int64_t>()[row] < 0)
        throw DataError("a column of a table has a number of uint64 in row ", row, " that is above those of int64");
  return column;
}

template <class Value>
at::Tensor one(Value value, at::ScalarType type) {
  at::Tensor column = at::empty({1}, type);
  *column.mutable_data_ptr<Value>() = value;
  return column;
}

Column column_of(const Row::Cell& cell) {
  if (const auto* truth = std::get_if<bool>(&cell)) return one(*truth, at::kBool);
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return one(*integer, at::kLong);
  if (const auto* number = std::get_if<double>(&cell)) return one(*number, at::kDouble);
  if (const auto* text = std::get_if<std::string>(&cell)) return std::vector<std::string>{*text};
  return one(std::numeric_limits<double>::quiet_NaN(), at::kDouble);
}

// The number of each value, counted from 0 in the order of first appearance.
template <class Value, class Get>
at::Tensor codes_of(const Column& column, const Get& get) {
  at::Tensor codes = at::empty({column.size()}, at::kLong);
  auto* const code = codes.mutable_data_ptr<std::int64_t>();
  std::unordered_map<Value, std::int64_t> known;
  for (std::int64_t row = 0; row < column.size(); ++row)
    code[row] = column.is_missing(row)
                    ? -1
                    : known.try_emplace(get(row), static_cast<std::int64_t>(known.size())).first->second;
  return codes;
}

std::string cell_text(const Column& column, std::int64_t row) {
  if (column.is_missing(row)) return "";
  if (column.is_text()) return std::string(column.texts()[row]);
  const at::Tensor& numbers = column.tensor();
  switch (column.type()) {
    case ColumnType::BOOL:
      return numbers.const_data_ptr<bool>()[row] ? "true" : "false";
    case ColumnType::INT64:
      return join(numbers.const_data_ptr<std::int64_t>()[row]);
    case ColumnType::FLOAT:
      return join(numbers.const_data_ptr<float>()[row]);
    default:
      return join(numbers.const_data_ptr<double>()[row]);
  }
}

}  // namespace

const char* name_of(ColumnType type) {
  switch (type) {
    case ColumnType::BOOL:
      return "BOOL";
    case ColumnType::INT64:
      return "INT64";
    case ColumnType::FLOAT:
      return "FLOAT";
    case ColumnType::DOUBLE:
      return "DOUBLE";
    case ColumnType::TEXT:
      return "TEXT";
  }
  return "?";
}

TextColumn::Source::~Source() = default;

TextColumn::TextColumn(const std::vector<std::string>& texts)
    : source_(own_texts(texts, [](const std::string& text) { return std::optional<std::string_view>(text); })) {}

TextColumn::TextColumn(const std::vector<std::optional<std::string>>& texts)
    : source_(own_texts(texts, [](const std::optional<std::string>& text) {
        return text ? std::optional<std::string_view>(*text) : std::nullopt;
      })) {}

TextColumn::TextColumn(std::initializer_list<const char*> texts)
    : source_(own_texts(texts, [](const char* text) { return std::optional<std::string_view>(text); })) {}

TextColumn TextColumn::rows(const at::Tensor& indices) const {
  const at::Tensor checked = row_numbers("TextColumn::rows", "column", indices, size());
  const auto* const index = checked.const_data_ptr<std::int64_t>();
  const std::int64_t count = checked.numel();
  std::size_t bytes = 0;
  for (std::int64_t i = 0; i < count; ++i) bytes += (*this)[index[i]].size();
  auto source = std::make_shared<OwnTexts>();
  source->reserve(static_cast<std::size_t>(count), bytes);
  for (std::int64_t i = 0; i < count; ++i) source->add((*this)[index[i]], is_missing(index[i]));
  source->finish();
  return TextColumn(std::move(source));
}

Column::Column(const at::Tensor& numbers) : values_(number_column(numbers)) {}

Column::Column(std::initializer_list<double> numbers) {
  at::Tensor column = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kDouble);
  std::ranges::copy(numbers, column.mutable_data_ptr<double>());
  values_ = std::move(column);
}

ColumnType Column::type() const {
  if (is_text()) return ColumnType::TEXT;
  switch (tensor().scalar_type()) {
    case at::kBool:
      return ColumnType::BOOL;
    case at::kLong:
      return ColumnType::INT64;
    case at::kFloat:
      return ColumnType::FLOAT;
    default:
      return ColumnType::DOUBLE;
  }
}

std::int64_t Column::size() const { return is_text() ? texts().size() : tensor().size(0); }

bool Column::is_missing(std::int64_t row) const {
  switch (type()) {
    case ColumnType::TEXT:
      return texts().is_missing(row);
    case ColumnType::FLOAT:
      return std::isnan(tensor().const_data_ptr<float>()[row]);
    case ColumnType::DOUBLE:
      return std::isnan(tensor().const_data_ptr<double>()[row]);
    default:
      return false;
  }
}

Column Column::rows(const at::Tensor& indices) const {
  if (is_text()) return {texts().rows(indices), why_text_};
  return tensor().index_select(0, row_numbers("Column::rows", "column", indices, size()));
}

void Row::Item::fail_too_large() const { throw DataError("Row: the number of \"", name, "\" is above those of int64"); }

Table::Table(std::initializer_list<std::pair<std::string, Column>> columns) {
  for (const auto& [name, column] : columns) {
    if (contains(name)) throw DataError("Table: two columns are called \"", name, '"');
    set(name, column);
  }
}

Table::Table(const Row& row) {
  for (const Row::Item& item : row.items()) {
    if (contains(item.name)) throw DataError("Row: two cells are called \"", item.name, '"');
    set(item.name, column_of(item.cell));
  }
}

Table::Table(const Batch& batch) {
  for (const auto& [name, tensor] : batch) {
    if (tensor.defined() && tensor.dim() == 2 && tensor.size(1) != 1) {
      for (std::int64_t k = 0; k < tensor.size(1); ++k) set(join(name, '_', k), tensor.select(1, k));
    } else if (tensor.defined() && tensor.dim() > 2) {
      throw DataError("Table: \"", name, "\" has the shape ", tensor.sizes(), "; columns are [N], or [N, K]");
    } else {
      set(name, tensor);
    }
  }
}

const Column* Table::find(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  return found == names_.end() ? nullptr : &columns_[static_cast<std::size_t>(found - names_.begin())];
}

bool Table::contains(std::string_view name) const { return find(name) != nullptr; }

void Table::fail_missing(std::string_view name) const {
  constexpr std::size_t kMostNames = 50;
  std::string list;
  for (std::size_t i = 0; i < std::min(names_.size(), kMostNames); ++i) list += (i > 0 ? ", " : "") + names_[i];
  if (names_.size() > kMostNames) list += ", ...";
  throw DataError("the table has no column \"", name, "\"; it has ", names_.empty() ? "none" : list);
}

const Column& Table::column(std::string_view name) const {
  const Column* const found = find(name);
  if (!found) fail_missing(name);
  return *found;
}

at::Tensor Table::operator[](std::string_view name) const {
  const Column& found = column(name);
  if (found.is_text())
    throw DataError("column \"", name, "\" is of texts, expected numbers",
                    found.why_text().empty() ? "; texts() gives it, and codes() numbers for its texts" : ": ",
                    found.why_text());
  return found.tensor();
}

const TextColumn& Table::texts(std::string_view name) const {
  const Column& found = column(name);
  if (!found.is_text()) throw DataError("column \"", name, "\" is ", name_of(found.type()), ", expected texts");
  return found.texts();
}

at::Tensor Table::missing(std::string_view name) const {
  const Column& found = column(name);
  at::Tensor missing = at::empty({rows_}, at::kBool);
  bool* const to = missing.mutable_data_ptr<bool>();
  for (std::int64_t row = 0; row < rows_; ++row) to[row] = found.is_missing(row);
  return missing;
}

at::Tensor Table::codes(std::string_view name) const {
  const Column& found = column(name);
  if (found.is_text()) return codes_of<std::string_view>(found, [&](std::int64_t row) { return found.texts()[row]; });
  if (found.type() == ColumnType::FLOAT || found.type() == ColumnType::DOUBLE) {
    const at::Tensor numbers = found.tensor().to(at::kDouble);
    return codes_of<double>(found, [&](std::int64_t row) { return numbers.const_data_ptr<double>()[row]; });
  }
  const at::Tensor numbers = found.tensor().to(at::kLong);
  return codes_of<std::int64_t>(found, [&](std::int64_t row) { return numbers.const_data_ptr<std::int64_t>()[row]; });
}

void Table::set(std::string_view name, Column column) {
  if (!util::is_utf8(name)) throw DataError("the name of a column is not UTF-8: ", util::valid_utf8(name));
  if (!columns_.empty() && column.size() != rows_)
    throw DataError("column \"", name, "\" has ", column.size(), " cells, and the table ", rows_, " rows");
  rows_ = column.size();
  if (const Column* const found = find(name)) {
    columns_[static_cast<std::size_t>(found - columns_.data())] = std::move(column);
  } else {
    names_.emplace_back(name);
    columns_.push_back(std::move(column));
  }
}

Table Table::select(const std::vector<std::string>& names) const {
  Table selected;
  for (const std::string& name : names) selected.set(name, column(name));
  return selected;
}

Table Table::drop(const std::vector<std::string>& names) const {
  for (const std::string& name : names) column(name);
  Table rest;
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (std::ranges::find(names, names_[i]) == names.end()) rest.set(names_[i], columns_[i]);
  return rest;
}

Table Table::rows(const at::Tensor& indices) const {
  const at::Tensor index = row_numbers("Table::rows", "table", indices, rows_);
  Table chosen;
  for (std::size_t i = 0; i < names_.size(); ++i) chosen.set(names_[i], columns_[i].rows(index));
  return chosen;
}

Table Table::rows(std::int64_t begin, std::int64_t end) const {
  if (begin < 0 || begin > end || end > rows_)
    throw DataError("Table::rows: [", begin, ", ", end, ") of a table of ", rows_, " rows");
  return rows(at::arange(begin, end, at::kLong));
}

Batch Table::batch(const std::vector<std::string>& names) const {
  Batch batch;
  for (const std::string& name : names) batch.set(name, (*this)[name]);
  return batch;
}

at::Tensor Table::matrix(const std::vector<std::string>& names) const {
  at::Tensor matrix = at::empty({rows_, static_cast<std::int64_t>(names.size())}, at::kFloat);
  for (std::size_t i = 0; i < names.size(); ++i)
    matrix.select(1, static_cast<std::int64_t>(i)).copy_((*this)[names[i]]);
  return matrix;
}

std::string Table::head(std::int64_t count) const {
  count = std::clamp<std::int64_t>(count, 0, rows_);
  util::TextTable table(std::string(names_.size(), 'r'));
  table.row(names_);
  for (std::int64_t row = 0; row < count; ++row) {
    std::vector<std::string> cells;
    for (const Column& column : columns_) cells.push_back(cell_text(column, row));
    table.row(std::move(cells));
  }
  return table.text();
}

std::int64_t num_rows(const Table& table) { return table.rows(); }
Table subset(const Table& table, const at::Tensor& rows) { return table.rows(rows); }
at::Tensor column(const Table& table, const std::string& name) {
  if (!table.column(name).is_text()) return table[name];
  const TextColumn& texts = table.texts(name);
  std::map<std::string_view, std::int64_t> places;
  for (std::int64_t row = 0; row < texts.size(); ++row)
    if (!texts.is_missing(row)) places.emplace(texts[row], 0);
  std::int64_t next = 0;
  for (auto& [text, place] : places) place = next++;
  const at::Tensor values = at::full({texts.size()}, -1, at::kLong);
  auto* const into = values.mutable_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < texts.size(); ++row)
    if (!texts.is_missing(row)) into[row] = places.at(texts[row]);
  return values;
}

}  // namespace composer::data
