#include "composer/data/table/csv_columns.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <set>

#include "composer/core/error.h"
#include "composer/data/byte_stream.h"
#include "composer/data/table/csv_values.h"
#include "composer/util/utf8.h"

namespace composer::data::detail {
namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";  // the byte order mark of UTF-8, with which Excel begins files

template <class T>
void append(Growing<T>& to, const std::vector<T>& values) {
  if (!values.empty()) std::memcpy(to.extend(values.size()), values.data(), values.size() * sizeof(T));
}

double number_of(std::int64_t value) {
  return value == CsvColumn::kNoInt64 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(value);
}

void turn_to_doubles(CsvColumn& column) {
  const std::size_t count = column.ints.size();
  double* const to = column.doubles.extend(count);
  for (std::size_t i = 0; i < count; ++i) to[i] = number_of(column.ints[i]);
  column.ints = {};
}

// Adds cells that are missing to a column of a known kind.
void append_missing(CsvColumn& column, std::size_t count) {
  switch (column.kind) {
    case CsvKind::NONE:
      break;
    case CsvKind::BOOL:
      std::fill_n(column.bools.extend(count), count, CsvColumn::kNoBool);
      break;
    case CsvKind::INT64:
      std::fill_n(column.ints.extend(count), count, CsvColumn::kNoInt64);
      break;
    case CsvKind::DOUBLE:
      std::fill_n(column.doubles.extend(count), count, std::numeric_limits<double>::quiet_NaN());
      break;
    case CsvKind::TEXT:
      std::fill_n(column.ends.extend(count), count, static_cast<std::int64_t>(column.bytes.size()));
      std::fill_n(column.absent.extend(count), count, std::uint8_t{1});
      break;
  }
}

void append_piece(CsvColumn& column, const CsvPiece& piece, std::size_t rows) {
  if (piece.kind == CsvKind::NONE) {
    append_missing(column, rows);
  } else if (column.kind == CsvKind::DOUBLE && piece.kind == CsvKind::INT64) {
    double* to = column.doubles.extend(piece.ints.size());
    for (const std::int64_t value : piece.ints) *to++ = number_of(value);
  } else if (column.kind == CsvKind::TEXT) {
    const auto before = static_cast<std::int64_t>(column.bytes.size());
    if (!piece.bytes.empty())
      std::memcpy(column.bytes.extend(piece.bytes.size()), piece.bytes.data(), piece.bytes.size());
    std::int64_t* to = column.ends.extend(piece.ends.size());
    for (const std::int64_t end : piece.ends) *to++ = before + end;
    append(column.absent, piece.absent);
  } else {
    append(column.bools, piece.kind == CsvKind::BOOL ? piece.bools : std::vector<std::uint8_t>());
    append(column.ints, piece.kind == CsvKind::INT64 ? piece.ints : std::vector<std::int64_t>());
    append(column.doubles, piece.kind == CsvKind::DOUBLE ? piece.doubles : std::vector<double>());
  }
  column.rows += rows;
  column.has_missing |= piece.has_missing;
}

// One reading of a file, of all chosen columns or of some of them.
class Reading {
 public:
  Reading(const CsvRules& rules, const RunAll& run_all)
      : rules_(rules),
        run_all_(run_all),
        missing_(rules.missing),
        splitter_(rules.dialect),
        values_(rules_, missing_) {}

  void read(ByteStream& bytes);

  std::vector<std::string> names;  // of the columns that are read
  std::vector<CsvColumn> columns;
  std::vector<bool> fixed;
  std::vector<bool> again;  // the columns that are text, and of which some cells have been read as numbers

  std::size_t rows() const { return rows_; }

  // Before read(): these columns alone, as texts.
  void read_as_texts(const std::vector<std::string>& columns) { as_texts_ = columns; }

 private:
  struct Block {
    std::string_view bytes;
    CsvCells cells;
    std::vector<CsvPiece> pieces;
    std::uint64_t lines = 0;
  };

  std::size_t begin(std::string_view bytes, bool all);
  void choose(const std::vector<std::string>& all);
  std::size_t place_of(const std::vector<std::string>& all, const std::string& name, const char* option) const;
  std::uint64_t take(const CsvChunk& chunk, std::vector<std::size_t> cuts);
  void take_column(const CsvChunk& chunk, std::size_t column, std::size_t count);
  void for_all(std::size_t count, std::vector<std::exception_ptr>& errors, const std::function<void(std::size_t)>& f);

  const CsvRules& rules_;
  const RunAll& run_all_;
  MissingTexts missing_;
  CsvSplitter splitter_;
  CsvValues values_;
  std::vector<std::string> as_texts_;
  bool begun_ = false;
  std::vector<int> places_;  // for each column of the file: its number among those that are read, or -1
  std::size_t rows_ = 0;
  std::vector<Block> blocks_;
};

void Reading::read(ByteStream& bytes) {
  std::vector<char> buffer;
  std::uint64_t line = 1;
  std::size_t kept = 0;  // bytes at the beginning of the buffer that belong to the next piece
  for (bool ended = false; !ended && rows_ < rules_.most_rows;) {
    if (buffer.size() < kept + rules_.bytes_at_once) buffer.resize(kept + rules_.bytes_at_once);
    const std::size_t got = bytes.read(buffer.data() + kept, rules_.bytes_at_once);
    ended = got < rules_.bytes_at_once;
    std::string_view rest(buffer.data(), kept + got);
    if (!begun_) {
      const std::size_t used = begin(rest, ended);
      line += lines_in(rest.substr(0, used));
      rest.remove_prefix(used);
    }
    std::vector<std::size_t> cuts{0};
    if (begun_) cuts = splitter_.cuts(rest, rules_.bytes_of_block);
    if (begun_ && ended && cuts.back() < rest.size()) cuts.push_back(rest.size());
    const std::size_t whole = cuts.back();
    if (whole == 0 && rest.size() > kLongestRecord)
      throw DataError(rules_.file, ":", line, ": a record begins here that has more than ", kLongestRecord >> 20,
                      " MB: is a quote never closed?");
    if (whole > 0) line += take({rules_.file, rest.substr(0, whole), line}, cuts);
    kept = rest.size() - whole;
    std::memmove(buffer.data(), rest.data() + whole, kept);
  }
  if (!begun_) throw DataError(rules_.file, ": has no header: the file is empty");
  if (rows_ == 0) throw DataError(rules_.file, ": has no rows");
}

// Reads what is before the rows. Returns its length, and sets begun_, unless there are more bytes to come.
std::size_t Reading::begin(std::string_view bytes, bool all) {
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF"))
    throw DataError(rules_.file, ": is UTF-16; convert it, as with iconv -f utf16 -t utf8");
  std::size_t at = bytes.starts_with(kMark) ? kMark.size() : 0;
  for (std::uint64_t i = 0; i < rules_.skip_lines; ++i) {
    const std::size_t end = bytes.find('\n', at);
    if (end == std::string_view::npos && !all) return 0;
    if (end == std::string_view::npos)
      throw DataError(rules_.file, ": has ", i + (at < bytes.size()), " lines; ", rules_.skip_lines,
                      " are to be skipped (skip_lines)");
    at = end + 1;
  }
  // The records that are complete.
  const std::string_view rest = bytes.substr(at);
  const std::string_view whole = all ? rest : rest.substr(0, splitter_.cuts(rest, rest.size() + 1).back());
  const CsvChunk chunk{rules_.file, bytes, 1};
  std::vector<CsvCell> record;
  std::size_t end = 0;
  const std::size_t first_line_end = std::min(whole.find('\n'), whole.size());
  if (const std::size_t zero = whole.substr(0, first_line_end).find('\0'); zero != std::string_view::npos)
    throw DataError(rules_.file, ": is no text: its first line has a zero byte, at byte ", at + zero);
  if (!splitter_.next(chunk, whole, end, record)) {
    if (all) throw DataError(rules_.file, ": is empty", rules_.header ? ": it has no header" : "");
    return 0;
  }
  const std::string_view first_line = whole.substr(0, first_line_end);
  if (const std::size_t cr = first_line.find('\r');
      cr != std::string_view::npos && cr + 1 < first_line.size() &&
      first_line.find(rules_.dialect.quote.value_or('"')) == std::string_view::npos)
    throw DataError(rules_.file, ": its lines end with CR alone, as at byte ", at + cr,
                    "; convert it, as with tr '\\r' '\\n'");
  std::vector<std::string> found;
  std::string unquoted;
  const CsvCells cells{.block = whole, .cells = {}, .rows = 1};
  for (std::size_t i = 0; i < record.size(); ++i) {
    std::string name(cells.text(record[i], rules_.dialect.quote.value_or('"'), unquoted));
    if (!util::is_utf8(name))
      throw DataError(rules_.file, ": the name of column ", i,
                      " is not UTF-8; convert the file, as with iconv -f latin1 ", "-t utf8");
    if (!rules_.header || name.empty()) name = join(rules_.header ? "Unnamed: " : "", i);
    found.push_back(std::move(name));
  }
  if (rules_.header && rules_.hint_of_separator && found.size() == 1)
    for (const auto& [other, text] :
         {std::pair(';', ";"), std::pair('\t', "\\t"), std::pair('|', "|"), std::pair(',', ",")})
      if (other != rules_.dialect.separator && found[0].find(other) != std::string::npos)
        throw DataError(rules_.file, ": has one column, called ", shown_cell(found[0]), "; if cells are separated by '",
                        text, "', set .separator = \"", text, "\"");
  if (!rules_.names.empty() && rules_.names.size() != found.size())
    throw DataError(rules_.file, ": has ", found.size(), " columns, and ", rules_.names.size(),
                    " names are given (names)");
  choose(rules_.names.empty() ? found : rules_.names);
  begun_ = true;
  return at + (rules_.header ? end : 0);
}

std::size_t Reading::place_of(const std::vector<std::string>& all, const std::string& name, const char* option) const {
  const auto found = std::ranges::find(all, name);
  if (found != all.end()) return static_cast<std::size_t>(found - all.begin());
  std::string list;
  for (const std::string& known : all)
    if (list.size() < 200) list += (list.empty() ? "" : ", ") + known;
  throw ConfigError(rules_.file, ": has no column \"", name, "\" (", option, "); it has ", list);
}

void Reading::choose(const std::vector<std::string>& all) {
  std::set<std::string_view> seen;
  for (const std::string& name : all)
    if (!seen.insert(name).second)
      throw DataError(rules_.file, ": two columns are called \"", name, "\"; give names (names)");
  std::vector<std::string> chosen = rules_.columns.empty() ? all : rules_.columns;
  if (!as_texts_.empty()) chosen = as_texts_;
  places_.assign(all.size(), -1);
  for (const std::string& name : chosen) {
    int& place = places_[place_of(all, name, "columns")];
    if (place >= 0) throw ConfigError(rules_.file, ": the column \"", name, "\" is named twice (columns)");
    place = static_cast<int>(names.size());
    names.push_back(name);
  }
  columns.resize(names.size());
  fixed.resize(names.size());
  again.resize(names.size());
  for (CsvColumn& column : columns)
    if (!as_texts_.empty()) column.kind = CsvKind::TEXT;
  for (const auto& [name, kind] : rules_.kinds) {
    const int place = places_[place_of(all, name, "types")];
    if (place < 0) continue;
    columns[static_cast<std::size_t>(place)].kind = kind;
    fixed[static_cast<std::size_t>(place)] = true;
  }
}

// Runs f for all; an error is that of the first one.
void Reading::for_all(std::size_t count, std::vector<std::exception_ptr>& errors,
                      const std::function<void(std::size_t)>& f) {
  errors.assign(count, nullptr);
  run_all_(count, [&](std::size_t i) {
    try {
      f(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

// Reads blocks of records, which end at the cuts. Returns the number of lines.
std::uint64_t Reading::take(const CsvChunk& chunk, std::vector<std::size_t> cuts) {
  const std::size_t width = names.size();
  if (rules_.most_rows != SIZE_MAX) cuts = {chunk.bytes.size()};  // in one block, whose records are counted
  if (blocks_.size() < cuts.size()) blocks_.resize(cuts.size());
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const std::size_t from = i == 0 ? 0 : cuts[i - 1];
    blocks_[i].bytes = chunk.bytes.substr(from, cuts[i] - from);
    blocks_[i].pieces.resize(width);
  }
  std::vector<std::exception_ptr> errors;
  for_all(cuts.size(), errors, [&](std::size_t i) {
    Block& block = blocks_[i];
    block.lines = lines_in(block.bytes);
    splitter_.split(chunk, block.bytes, places_, width, rules_.most_rows - rows_, block.cells);
    for (std::size_t c = 0; c < width; ++c)
      values_.read(chunk, block.cells, c, width, columns[c].kind, fixed[c], names[c], block.pieces[c]);
  });
  std::uint64_t lines = 0;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    rows_ += blocks_[i].cells.rows;
    lines += blocks_[i].lines;
  }
  for_all(width, errors, [&](std::size_t c) { take_column(chunk, c, cuts.size()); });
  return lines;
}

void Reading::take_column(const CsvChunk& chunk, std::size_t c, std::size_t count) {
  CsvColumn& column = columns[c];
  CsvKind kind = column.kind;
  for (std::size_t i = 0; i < count; ++i) {
    const CsvPiece& piece = blocks_[i].pieces[c];
    kind = joined(kind, piece.kind);
    if (column.first_text.empty() && kind == CsvKind::TEXT && piece.first_text.data())
      column.first_text = join("line ", chunk.line_of(piece.first_text.data()), " has ", shown_cell(piece.first_text));
  }
  if (kind == CsvKind::TEXT && kind != column.kind && column.kind != CsvKind::NONE) again[c] = true;
  if (kind == CsvKind::DOUBLE && column.kind == CsvKind::INT64) turn_to_doubles(column);
  if (kind != column.kind && column.kind == CsvKind::NONE) {
    column.kind = kind;
    append_missing(column, column.rows);
  }
  column.kind = kind;
  for (std::size_t i = 0; i < count; ++i) {
    Block& block = blocks_[i];
    CsvPiece& piece = block.pieces[c];
    if (again[c]) continue;
    if (kind == CsvKind::TEXT && piece.kind != CsvKind::TEXT)
      values_.read(chunk, block.cells, c, names.size(), CsvKind::TEXT, true, names[c], piece);
    append_piece(column, piece, block.cells.rows);
  }
}

}  // namespace

CsvContents read_csv_contents(const OpenBytes& open, const CsvRules& rules, const RunAll& run_all) {
  Reading first(rules, run_all);
  first.read(*open());
  std::vector<std::string> texts;
  for (std::size_t c = 0; c < first.names.size(); ++c)
    if (first.again[c]) {
      texts.push_back(first.names[c]);
      first.columns[c] = {.first_text = std::move(first.columns[c].first_text)};
    }
  if (!texts.empty()) {
    Reading second(rules, run_all);
    second.read_as_texts(texts);
    second.read(*open());
    for (std::size_t c = 0, i = 0; c < first.names.size(); ++c) {
      if (!first.again[c]) continue;
      if (second.columns[i].rows != first.rows())
        throw DataError(rules.file, ": was changed while it was read: it had ", first.rows(), " rows, and now ",
                        second.columns[i].rows);
      second.columns[i].first_text = std::move(first.columns[c].first_text);
      first.columns[c] = std::move(second.columns[i++]);
    }
  }
  return {std::move(first.names), std::move(first.columns)};
}

}  // namespace composer::data::detail
