#include "composer/data/table/csv_columns.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
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
    if (piece.kind == CsvKind::BOOL) append(column.bools, piece.bools);
    if (piece.kind == CsvKind::INT64) append(column.ints, piece.ints);
    if (piece.kind == CsvKind::DOUBLE) append(column.doubles, piece.doubles);
  }
  column.rows += rows;
  column.has_missing |= piece.has_missing;
  column.has_quoted_missing |= piece.has_quoted_missing;
}

// Some whole records of a file, and the values that are read of them.
struct Piece {
  std::size_t number = 0;
  std::uint64_t line = 1;
  std::vector<char> buffer;
  std::size_t begin = 0, end = 0;  // of the records in the buffer
  CsvCells cells;
  std::vector<CsvPiece> columns;

  std::string_view bytes() const { return {buffer.data() + begin, end - begin}; }
};

// One reading of a file, of all chosen columns or of some of them. Each thread takes the next piece of the file, reads
// its values, and adds them to the columns, with those that other threads have read of later pieces and left behind.
// Threads wait only for a piece that is far behind.
class Reading {
 public:
  Reading(const CsvRules& rules, ByteStream& bytes)
      : rules_(rules), bytes_(bytes), missing_(rules.missing), splitter_(rules.dialect), values_(rules_, missing_) {}

  // Before read(): these columns alone, as texts.
  void read_as_texts(const std::vector<std::string>& columns) { as_texts_ = columns; }
  void read(const OnThreads& on_threads);

  std::size_t rows() const { return rows_; }

  std::vector<std::string> names;  // of the columns that are read
  std::vector<CsvColumn> columns;
  std::vector<std::uint8_t> fixed;  // no bits, because threads read them

 private:
  using PiecePointer = std::unique_ptr<Piece>;
  static constexpr std::size_t kMostAhead = 16;  // pieces that are read before an earlier one is

  void work();
  PiecePointer next_piece();
  bool fill(Piece& piece);
  void read_values(Piece& piece);
  void deliver(PiecePointer piece);
  void add(Piece& piece);
  void add_column(Piece& piece, std::size_t column);
  void fail(std::size_t number);

  std::size_t begin(std::string_view bytes, bool all);
  void choose(const std::vector<std::string>& all);
  std::size_t place_of(const std::vector<std::string>& all, const std::string& name, const char* option) const;

  const CsvRules& rules_;
  ByteStream& bytes_;
  MissingTexts missing_;
  CsvSplitter splitter_;
  CsvValues values_;
  std::vector<std::string> as_texts_;
  std::vector<int> places_;  // for each column of the file: its number among those that are read, or -1

  std::mutex reading_;  // guards what follows
  bool begun_ = false, ended_ = false;
  std::string kept_;  // what has been read of the next piece
  std::uint64_t line_ = 1;
  std::size_t taken_ = 0;  // pieces

  std::mutex adding_;  // guards what follows, and the columns
  std::condition_variable added_;
  std::size_t next_ = 0;                       // number of the piece that is added next
  std::map<std::size_t, PiecePointer> later_;  // those that were read before it
  std::vector<PiecePointer> unused_;           // for their memory
  std::size_t rows_ = 0;
  std::size_t failed_ = SIZE_MAX;  // number of the first piece with an error
  std::exception_ptr error_;
};

void Reading::read(const OnThreads& on_threads) {
  if (rules_.most_rows == SIZE_MAX)
    on_threads([&] { work(); });
  else
    work();  // so that no piece is read that follows the last row
  if (error_) std::rethrow_exception(error_);
}

void Reading::work() {
  std::size_t number = 0;
  try {
    for (;;) {
      PiecePointer piece;
      {
        const std::lock_guard lock(reading_);
        number = taken_;
        piece = next_piece();
      }
      if (!piece) return;
      read_values(*piece);
      deliver(std::move(piece));
    }
  } catch (...) {
    fail(number);
  }
}

void Reading::fail(std::size_t number) {
  const std::lock_guard lock(adding_);
  if (number < failed_) {
    failed_ = number;
    error_ = std::current_exception();
  }
  added_.notify_all();
}

Reading::PiecePointer Reading::next_piece() {
  PiecePointer piece;
  {
    std::unique_lock lock(adding_);
    added_.wait(lock, [&] { return failed_ != SIZE_MAX || taken_ < next_ + kMostAhead; });
    if (failed_ != SIZE_MAX || rows_ >= rules_.most_rows) return nullptr;
    if (!unused_.empty()) {
      piece = std::move(unused_.back());
      unused_.pop_back();
    }
  }
  if (!piece) piece = std::make_unique<Piece>();
  while (!ended_)
    if (fill(*piece)) {
      piece->number = taken_++;
      return piece;
    }
  return nullptr;
}

// Reads on in the file. Returns false if there is no whole record yet.
bool Reading::fill(Piece& piece) {
  const std::size_t room = kept_.size() + rules_.bytes_at_once;
  if (piece.buffer.size() < room) piece.buffer.resize(room);
  std::ranges::copy(kept_, piece.buffer.begin());
  const std::size_t got = bytes_.read(piece.buffer.data() + kept_.size(), rules_.bytes_at_once);
  ended_ = got < rules_.bytes_at_once;
  const std::string_view all(piece.buffer.data(), kept_.size() + got);
  piece.begin = 0;
  if (!begun_) {
    piece.begin = begin(all, ended_);
    line_ += lines_in(all.substr(0, piece.begin));
  }
  const std::string_view rest = all.substr(piece.begin);
  const std::size_t whole = !begun_ ? 0 : ended_ ? rest.size() : splitter_.whole_records(rest);
  if (whole == 0 && rest.size() > kLongestRecord)
    throw DataError(rules_.file, ":", line_, ": a record begins here that has more than ", kLongestRecord >> 20,
                    " MB: is a quote never closed?");
  piece.end = piece.begin + whole;
  piece.line = line_;
  line_ += lines_in(piece.bytes());
  kept_ = all.substr(piece.end);
  return whole > 0;
}

void Reading::read_values(Piece& piece) {
  const CsvChunk chunk{rules_.file, piece.bytes(), piece.line};
  std::vector<CsvKind> least;
  std::size_t most = rules_.most_rows;
  {
    const std::lock_guard lock(adding_);
    for (const CsvColumn& column : columns) least.push_back(column.kind);
    if (most != SIZE_MAX) most -= rows_;
  }
  splitter_.split(chunk, places_, names.size(), most, piece.cells);
  piece.columns.resize(names.size());
  for (std::size_t c = 0; c < names.size(); ++c)
    values_.read(chunk, piece.cells, c, names.size(), least[c], fixed[c] != 0, names[c], piece.columns[c]);
}

void Reading::deliver(PiecePointer piece) {
  const std::lock_guard lock(adding_);
  later_.emplace(piece->number, std::move(piece));
  while (!later_.empty() && later_.begin()->first == next_ && next_ < failed_) {
    PiecePointer first = std::move(later_.begin()->second);
    later_.erase(later_.begin());
    try {
      add(*first);
    } catch (...) {
      failed_ = next_;
      error_ = std::current_exception();
    }
    ++next_;
    unused_.push_back(std::move(first));
  }
  added_.notify_all();
}

void Reading::add(Piece& piece) {
  for (std::size_t c = 0; c < names.size(); ++c) add_column(piece, c);
  rows_ += piece.cells.rows;
}

void Reading::add_column(Piece& piece, std::size_t c) {
  const CsvChunk chunk{rules_.file, piece.bytes(), piece.line};
  CsvColumn& column = columns[c];
  CsvPiece& values = piece.columns[c];
  const CsvKind kind = joined(column.kind, values.kind);
  if (column.first_text.empty() && kind == CsvKind::TEXT && values.first_text.data())
    column.first_text = join("line ", chunk.line_of(values.first_text.data()), " has ", shown_cell(values.first_text));
  if (kind == CsvKind::TEXT && kind != column.kind && (column.kind != CsvKind::NONE || column.has_quoted_missing))
    column.again = true;
  if (kind == CsvKind::DOUBLE && column.kind == CsvKind::INT64) turn_to_doubles(column);
  if (column.kind == CsvKind::NONE) {
    column.kind = kind;
    append_missing(column, column.rows);
  }
  column.kind = kind;
  if (column.again) return;
  if (kind == CsvKind::TEXT && values.kind != CsvKind::TEXT)
    values_.read(chunk, piece.cells, c, names.size(), CsvKind::TEXT, true, names[c], values);
  append_piece(column, values, piece.cells.rows);
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
  const std::string_view whole = all ? rest : rest.substr(0, splitter_.whole_records(rest));
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
  for (CsvColumn& column : columns)
    if (!as_texts_.empty()) column.kind = CsvKind::TEXT;
  for (const auto& [name, kind] : rules_.kinds) {
    const int place = places_[place_of(all, name, "types")];
    if (place < 0) continue;
    columns[static_cast<std::size_t>(place)].kind = kind;
    fixed[static_cast<std::size_t>(place)] = 1;
  }
}

}  // namespace

CsvContents read_csv_contents(const OpenBytes& open, const CsvRules& rules, const OnThreads& on_threads) {
  const std::unique_ptr<ByteStream> bytes = open();
  Reading first(rules, *bytes);
  first.read(on_threads);
  std::vector<std::string> texts;
  for (std::size_t c = 0; c < first.names.size(); ++c)
    if (first.columns[c].again) {
      texts.push_back(first.names[c]);
      first.columns[c] = {.again = true, .first_text = std::move(first.columns[c].first_text)};
    }
  if (!texts.empty()) {
    const std::unique_ptr<ByteStream> once_more = open();
    Reading second(rules, *once_more);
    second.read_as_texts(texts);
    second.read(on_threads);
    for (std::size_t c = 0, i = 0; c < first.names.size(); ++c) {
      if (!first.columns[c].again) continue;
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
