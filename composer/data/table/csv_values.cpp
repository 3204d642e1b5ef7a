#include "composer/data/table/csv_values.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"
#include "composer/util/utf8.h"

namespace composer::data::detail {
namespace {

constexpr std::size_t kLongestDecimal = 64;  // digits of a number with a decimal comma

bool is_bool(std::string_view text, std::uint8_t& value) {
  if (text == "true" || text == "True" || text == "TRUE") return value = 1, true;
  if (text == "false" || text == "False" || text == "FALSE") return value = 0, true;
  return false;
}

// Numbers may begin with a plus, which from_chars does not take.
bool drop_plus(std::string_view& text) {
  if (!text.starts_with('+')) return true;
  text.remove_prefix(1);
  return !text.starts_with('-') && !text.starts_with('+');
}

bool is_int(std::string_view text, std::int64_t& value) {
  if (!drop_plus(text)) return false;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && value != CsvColumn::kNoInt64;
}

// Of a decimal number that is too large or too small for a double: which of the two it is.
bool is_large(std::string_view text) {
  const std::size_t exponent_at = std::min(text.find_first_of("eE"), text.size());
  const std::string_view digits = text.substr(0, exponent_at);
  std::string_view exponent_text = text.substr(std::min(exponent_at + 1, text.size()));
  drop_plus(exponent_text);
  std::int64_t exponent = 0;
  if (std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent).ec ==
      std::errc::result_out_of_range)
    return !exponent_text.starts_with('-');
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
  const auto first = static_cast<std::int64_t>(std::min(digits.find_first_of("123456789"), digits.size()));
  return exponent > first - point;
}

bool is_double(std::string_view text, double& value, bool decimal_comma) {
  char buffer[kLongestDecimal];
  if (!drop_plus(text)) return false;
  if (decimal_comma) {
    if (text.find('.') != std::string_view::npos) return false;
    if (text.find(',') != std::string_view::npos) {
      if (text.size() > kLongestDecimal) return false;
      std::ranges::replace_copy(text, buffer, ',', '.');
      text = {buffer, text.size()};
    }
  }
  if (text.empty() || text.back() == ')') return false;  // nan(...)
  const char* const end = text.data() + text.size();
  auto result = std::from_chars(text.data(), end, value);
  if (result.ec == std::errc::result_out_of_range) {  // such as 1e999 and 1e-999, which become infinity and 0
    value = is_large(text) ? std::numeric_limits<double>::infinity() : 0;
    if (text.front() == '-') value = -value;
    result.ec = {};
  }
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

std::string_view without_spaces(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string shown_cell(std::string_view text) { return '"' + util::valid_utf8(formats::shown(text)) + '"'; }

CsvKind joined(CsvKind a, CsvKind b) {
  if (a == b || b == CsvKind::NONE) return a;
  if (a == CsvKind::NONE) return b;
  const bool numbers = std::min(a, b) == CsvKind::INT64 && std::max(a, b) == CsvKind::DOUBLE;
  return numbers ? CsvKind::DOUBLE : CsvKind::TEXT;
}

const char* name_of(CsvKind kind) {
  switch (kind) {
    case CsvKind::NONE:
      return "nothing";
    case CsvKind::BOOL:
      return "true or false";
    case CsvKind::INT64:
      return "an integer";
    case CsvKind::DOUBLE:
      return "a number";
    case CsvKind::TEXT:
      return "a text";
  }
  return "?";
}

std::optional<double> csv_number(std::string_view text, bool decimal_comma) {
  double value = 0;
  if (is_double(without_spaces(text), value, decimal_comma)) return value;
  return std::nullopt;
}

MissingTexts::MissingTexts(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const std::string_view bare = without_spaces(text);
    if (bare.empty()) {
      empty_ = true;
    } else {
      texts_.emplace_back(bare);
      longest_ = std::max(longest_, bare.size());
      begins_[static_cast<unsigned char>(bare.front())] = true;
    }
  }
}

bool MissingTexts::find(std::string_view cell) const { return std::ranges::find(texts_, cell) != texts_.end(); }

struct CsvValues::Column {
  const CsvCells& cells;
  std::size_t column, width;
  const CsvCell& at(std::size_t row) const { return cells.cells[row * width + column]; }
  // Without the spaces around it. A number or a missing cell has no quotes within it.
  std::string_view bare(std::size_t row) const { return without_spaces(cells.raw(at(row))); }
};

// Whether a cell of a column that is not one of texts is missing.
inline bool CsvValues::is_missing(const Column& column, std::size_t row, CsvPiece& piece) const {
  if (!missing_.contains(column.bare(row))) return false;
  piece.has_missing = true;
  if (!rules_.quoted_missing && column.cells.is_quoted(column.at(row), rules_.dialect.quote))
    piece.has_quoted_missing = true;
  return true;
}

CsvKind CsvValues::kind_of(std::string_view cell) const {
  std::uint8_t truth = 0;
  std::int64_t integer = 0;
  double number = 0;
  if (missing_.contains(cell)) return CsvKind::NONE;
  if (is_bool(cell, truth)) return CsvKind::BOOL;
  if (is_int(cell, integer)) return CsvKind::INT64;
  return is_double(cell, number, rules_.decimal_comma) ? CsvKind::DOUBLE : CsvKind::TEXT;
}

std::size_t CsvValues::read_bools(const Column& column, CsvPiece& piece) const {
  piece.bools.resize(column.cells.rows);
  for (std::size_t row = 0; row < column.cells.rows; ++row) {
    const std::string_view cell = column.bare(row);
    if (is_bool(cell, piece.bools[row])) continue;
    if (!is_missing(column, row, piece)) return row;
    piece.bools[row] = CsvColumn::kNoBool;
  }
  return column.cells.rows;
}

std::size_t CsvValues::read_ints(const Column& column, CsvPiece& piece) const {
  piece.ints.resize(column.cells.rows);
  for (std::size_t row = 0; row < column.cells.rows; ++row) {
    if (is_missing(column, row, piece))
      piece.ints[row] = CsvColumn::kNoInt64;
    else if (!is_int(column.bare(row), piece.ints[row]))
      return row;
  }
  return column.cells.rows;
}

std::size_t CsvValues::read_doubles(const Column& column, CsvPiece& piece) const {
  piece.doubles.resize(column.cells.rows);
  for (std::size_t row = 0; row < column.cells.rows; ++row) {
    if (is_missing(column, row, piece))
      piece.doubles[row] = std::numeric_limits<double>::quiet_NaN();
    else if (!is_double(column.bare(row), piece.doubles[row], rules_.decimal_comma))
      return row;
  }
  return column.cells.rows;
}

void CsvValues::read_texts(const CsvChunk& chunk, const Column& column, const std::string& name,
                           CsvPiece& piece) const {
  piece.bytes.clear();
  piece.ends.resize(column.cells.rows);
  piece.absent.resize(column.cells.rows);
  std::string unquoted;
  for (std::size_t row = 0; row < column.cells.rows; ++row) {
    // A quoted cell is a text: "NA" is the country, and NA a missing cell.
    const bool missing = missing_.contains(column.bare(row)) &&
                         (rules_.quoted_missing || !column.cells.is_quoted(column.at(row), rules_.dialect.quote));
    if (!missing) {
      const std::string_view text = column.cells.text(column.at(row), rules_.dialect.quote.value_or('"'), unquoted);
      if (!column.cells.is_ascii && !is_ascii(text) && !util::is_utf8(text))
        throw DataError(rules_.file, ":", chunk.line_of(column.cells.raw(column.at(row)).data()), ": ", name, " is ",
                        shown_cell(text), ", which is not UTF-8; convert the file, as with iconv -f latin1 -t utf8");
      piece.bytes += text;
    }
    piece.absent[row] = missing ? 1 : 0;
    piece.has_missing |= missing;
    piece.ends[row] = static_cast<std::int64_t>(piece.bytes.size());
  }
}

std::size_t CsvValues::read_as(CsvKind kind, const CsvChunk& chunk, const Column& column, const std::string& name,
                               CsvPiece& piece) const {
  piece.has_missing = piece.has_quoted_missing = false;
  switch (kind) {
    case CsvKind::NONE:
      break;
    case CsvKind::BOOL:
      return read_bools(column, piece);
    case CsvKind::INT64:
      return read_ints(column, piece);
    case CsvKind::DOUBLE:
      return read_doubles(column, piece);
    case CsvKind::TEXT:
      read_texts(chunk, column, name, piece);
      return column.cells.rows;
  }
  for (std::size_t row = 0; row < column.cells.rows; ++row)
    if (!is_missing(column, row, piece)) return row;
  return column.cells.rows;
}

void CsvValues::read(const CsvChunk& chunk, const CsvCells& cells, std::size_t column_number, std::size_t width,
                     CsvKind least, bool fixed, const std::string& name, CsvPiece& piece) const {
  const Column column{cells, column_number, width};
  const auto place = [&](std::size_t row) { return chunk.line_of(cells.raw(column.at(row)).data()); };
  piece.first_text = {};
  for (piece.kind = least;;) {
    const std::size_t row = read_as(piece.kind, chunk, column, name, piece);
    if (row == cells.rows) break;
    const std::string_view cell = column.bare(row);
    if (fixed)
      throw DataError(rules_.file, ":", place(row), ": ", name, " is ", shown_cell(cell), ", expected ",
                      name_of(least));
    const CsvKind wider = joined(piece.kind, kind_of(cell));
    piece.kind = wider == piece.kind ? CsvKind::TEXT : wider;
    if (piece.kind == CsvKind::TEXT && !piece.first_text.data()) piece.first_text = cells.raw(column.at(row));
  }
  if (fixed && piece.has_missing && (piece.kind == CsvKind::BOOL || piece.kind == CsvKind::INT64))
    for (std::size_t row = 0; row < cells.rows; ++row)
      if (missing_.contains(column.bare(row)))
        throw DataError(rules_.file, ":", place(row), ": ", name, " is missing, expected ", name_of(piece.kind),
                        "; columns of missing cells can be of type DOUBLE, FLOAT or TEXT");
}

}  // namespace composer::data::detail
