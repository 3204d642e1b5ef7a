#include "composer/data/table/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/byte_stream.h"
#include "composer/data/table/csv_columns.h"
#include "composer/data/table/csv_values.h"
#include "composer/formats/json_reader.h"
#include "composer/util/new_file.h"
#include "composer/util/parallel.h"

namespace composer::data {
namespace {

namespace fs = std::filesystem;
using detail::CsvColumn;
using detail::CsvKind;
using detail::Growing;

constexpr std::size_t kWrittenAtOnce = 1 << 20;

const std::vector<std::string>& default_missing() {
  static const std::vector<std::string> kTexts = {"",    "NA",  "N/A",  "n/a",  "#N/A", "<NA>",
                                                  "NaN", "nan", "null", "NULL", "None"};
  return kTexts;
}

std::vector<Option<CsvOptions>> csv_options() {
  using O = CsvOptions;
  const auto one_byte = [](const std::string& text) {
    return text.empty() || (text.size() == 1 && text != "\n" && text != "\r");
  };
  const std::string rule = "be one character of one byte, and no end of a line";
  const auto printable = [](const std::string& text) { return formats::shown(text); };
  return all_options(
      option("separator", &O::separator).must(rule, one_byte).shown(printable), option("header", &O::header),
      option("names", &O::names), option("columns", &O::columns), part("types", &O::types, "types of columns"),
      option("missing", &O::missing), option("keep_default_missing", &O::keep_default_missing),
      option("quoted_missing", &O::quoted_missing), option("quote", &O::quote).must(rule, one_byte).shown(printable),
      option("comment", &O::comment).must(rule, one_byte).shown(printable), option("decimal_comma", &O::decimal_comma),
      option("skip_lines", &O::skip_lines).at_least(0), option("max_rows", &O::max_rows).at_least(1));
}

CsvKind kind_of(ColumnType type) {
  switch (type) {
    case ColumnType::BOOL:
      return CsvKind::BOOL;
    case ColumnType::INT64:
      return CsvKind::INT64;
    case ColumnType::TEXT:
      return CsvKind::TEXT;
    default:
      return CsvKind::DOUBLE;
  }
}

char separator_of(const fs::path& file) {
  const fs::path name = file.extension() == ".gz" ? file.stem() : file.filename();
  return name.extension() == ".tsv" || name.extension() == ".tab" ? '\t' : ',';
}

std::optional<char> first_of(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text.front());
}

detail::CsvRules rules_of(const fs::path& file, const CsvOptions& options) {
  detail::CsvRules rules;
  rules.file = file.string();
  rules.dialect = {.separator = options.separator.empty() ? separator_of(file) : options.separator.front(),
                   .quote = first_of(options.quote),
                   .comment = first_of(options.comment)};
  rules.header = options.header;
  rules.decimal_comma = options.decimal_comma;
  rules.hint_of_separator = options.separator.empty();
  rules.skip_lines = static_cast<std::uint64_t>(options.skip_lines);
  if (options.max_rows) rules.most_rows = static_cast<std::size_t>(*options.max_rows);
  rules.names = options.names;
  rules.columns = options.columns;
  for (const auto& [name, type] : options.types) rules.kinds.emplace_back(name, kind_of(type));
  rules.missing = options.missing;
  if (options.keep_default_missing)
    rules.missing.insert(rules.missing.end(), default_missing().begin(), default_missing().end());
  rules.quoted_missing = options.quoted_missing;
  if (rules.dialect.separator == rules.dialect.quote || rules.dialect.separator == rules.dialect.comment ||
      (rules.dialect.quote && rules.dialect.quote == rules.dialect.comment))
    throw ConfigError("read_csv: separator, quote and comment must differ, got \"", options.separator, "\", \"",
                      options.quote, "\" and \"", options.comment, '"');
  if (rules.decimal_comma && rules.dialect.separator == ',')
    throw ConfigError(
        "read_csv: with decimal_comma, the separator must be another character than the comma; set "
        ".separator = \";\"");
  return rules;
}

// A tensor [N] of the values, which it owns.
template <class Value>
at::Tensor owning(Growing<Value>&& values, at::ScalarType type) {
  values.fit();
  auto* const held = new Growing<Value>(std::move(values));
  return at::from_blob(
      held->data(), {static_cast<std::int64_t>(held->size())}, [held](void*) { delete held; },
      at::TensorOptions().dtype(type));
}

class CsvTexts final : public TextColumn::Source {
 public:
  explicit CsvTexts(CsvColumn&& column)
      : bytes_(std::move(column.bytes)), ends_(std::move(column.ends)), absent_(std::move(column.absent)) {
    bytes_.fit();
    ends_.fit();
    absent_.fit();
    size = static_cast<std::int64_t>(ends_.size());
    bytes = bytes_.data();
    ends = ends_.data();
    absent = column.has_missing ? absent_.data() : nullptr;
  }

 private:
  Growing<char> bytes_;
  Growing<std::int64_t> ends_;
  Growing<std::uint8_t> absent_;
};

// Doubles do not hold all integers above 2^53.
void warn_of_large(const CsvColumn& column, const std::string& file, const std::string& name) {
  constexpr std::int64_t kMostExact = std::int64_t{1} << 53;
  for (std::size_t row = 0; row < column.rows; ++row) {
    const std::int64_t value = column.ints[row];
    if (value == CsvColumn::kNoInt64 || (value >= -kMostExact && value <= kMostExact)) continue;
    return warn(join("read_csv: ", file, ": ", name, " has missing cells and integers such as ", value,
                     ", which are rounded, because the column becomes one of doubles; give it the type TEXT"));
  }
}

at::Tensor as_doubles(const CsvColumn& column) {
  Growing<double> numbers;
  double* const to = numbers.extend(column.rows);
  constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t row = 0; row < column.rows; ++row) {
    if (column.kind == CsvKind::BOOL)
      to[row] = column.bools[row] == CsvColumn::kNoBool ? kMissing : column.bools[row];
    else if (column.kind == CsvKind::INT64)
      to[row] = column.ints[row] == CsvColumn::kNoInt64 ? kMissing : static_cast<double>(column.ints[row]);
    else
      to[row] = kMissing;
  }
  return owning(std::move(numbers), at::kDouble);
}

Column column_of(CsvColumn&& column, const std::string& file, const std::string& name, std::optional<ColumnType> type) {
  if (column.kind == CsvKind::TEXT) {
    const std::string why = column.first_text.empty() ? "" : file + ": " + column.first_text;
    return {TextColumn(std::make_shared<CsvTexts>(std::move(column))), type ? "" : why};
  }
  if (column.kind == CsvKind::DOUBLE) {
    const at::Tensor numbers = owning(std::move(column.doubles), at::kDouble);
    return type == ColumnType::FLOAT ? numbers.to(at::kFloat) : numbers;
  }
  if (column.has_missing && column.kind == CsvKind::INT64) warn_of_large(column, file, name);
  if (column.has_missing || column.kind == CsvKind::NONE) return as_doubles(column);
  if (column.kind == CsvKind::BOOL) return owning(std::move(column.bools), at::kBool);
  return owning(std::move(column.ints), at::kLong);
}

// A file that is being written, with a buffer.
class CsvWriter {
 public:
  CsvWriter(const fs::path& file, char separator) : file_(file), separator_(separator) {}

  void between(bool last) { buffer_ += last ? '\n' : separator_; }
  void text(std::string_view text) {
    const bool plain =
        text.find_first_of("\"\r\n") == std::string_view::npos && text.find(separator_) == std::string_view::npos;
    // A text that stands for a missing cell, such as NA or a blank, is a text if it is quoted.
    if (plain && !text.empty() && !missing_.contains(detail::without_spaces(text))) {
      buffer_ += text;
      return;
    }
    buffer_ += '"';
    for (char c : text) buffer_.append(c == '"' ? 2 : 1, c);
    buffer_ += '"';
  }
  template <class Number>
  void number(Number value) {
    char digits[32];
    buffer_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
  void word(std::string_view word) { buffer_ += word; }
  void end_row() {
    if (buffer_.size() >= kWrittenAtOnce) flush();
  }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.write(buffer_);
    buffer_.clear();
  }

  util::NewFile file_;
  char separator_;
  detail::MissingTexts missing_{default_missing()};
  std::string buffer_;
};

void write_cell(CsvWriter& to, const Column& column, std::int64_t row, bool only) {
  if (column.is_missing(row)) {
    if (only) to.word("NA");  // because an empty line would be left out
    return;
  }
  switch (column.type()) {
    case ColumnType::BOOL:
      return to.word(column.tensor().const_data_ptr<bool>()[row] ? "true" : "false");
    case ColumnType::INT64:
      return to.number(column.tensor().const_data_ptr<std::int64_t>()[row]);
    case ColumnType::FLOAT:
      return to.number(column.tensor().const_data_ptr<float>()[row]);
    case ColumnType::DOUBLE:
      return to.number(column.tensor().const_data_ptr<double>()[row]);
    case ColumnType::TEXT:
      return to.text(column.texts()[row]);
  }
}

}  // namespace

Table read_csv(const fs::path& file, CsvOptions options) {
  options = checked("read_csv", std::move(options), csv_options());
  const detail::CsvRules rules = rules_of(file, options);
  detail::CsvContents contents = detail::read_csv_contents([&] { return detail::open_bytes(file); }, rules,
                                                           [](const std::function<void()>& work) {
                                                             parallel_for(0, at::get_num_threads(), 1,
                                                                          [&](std::int64_t, std::int64_t) { work(); });
                                                           });
  // In the order in which the columns are asked for, which the reader keeps.
  Table table;
  for (std::size_t c = 0; c < contents.names.size(); ++c) {
    const auto type = options.types.find(contents.names[c]);
    table.set(contents.names[c], column_of(std::move(contents.columns[c]), rules.file, contents.names[c],
                                           type == options.types.end() ? std::nullopt : std::optional(type->second)));
  }
  return table;
}

void write_csv(const Table& table, const fs::path& file) {
  CsvWriter to(file, separator_of(file));
  const std::vector<std::string>& names = table.names();
  if (names.empty()) throw DataError("write_csv: ", file.string(), ": the table has no columns");
  std::vector<const Column*> columns;
  for (const std::string& name : names) {
    columns.push_back(&table.column(name));
    to.text(name);
    to.between(columns.size() == names.size());
  }
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      write_cell(to, *columns[c], row, columns.size() == 1);
      to.between(c + 1 == columns.size());
    }
    to.end_row();
  }
  to.commit();
}

void write_csv(const Batch& batch, const fs::path& file) { write_csv(Table(batch), file); }

}  // namespace composer::data
