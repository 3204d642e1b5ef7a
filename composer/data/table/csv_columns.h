#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "composer/data/table/csv_cells.h"
#include "composer/data/table/growing.h"

namespace composer::data::detail {

class ByteStream;

// What the cells of a column are. Without a given kind, it is the first of these that all cells have which are not
// missing: a column of BOOL and numbers is TEXT, and one of INT64 and DOUBLE is DOUBLE.
enum class CsvKind : std::uint8_t { NONE, BOOL, INT64, DOUBLE, TEXT };

// The cells of a column. One of the arrays is used, by its kind. A missing cell is kNoBool, kNoInt64, NaN, or an empty
// text that is marked in `absent`.
struct CsvColumn {
  static constexpr std::uint8_t kNoBool = 2;
  static constexpr std::int64_t kNoInt64 = INT64_MIN;

  CsvKind kind = CsvKind::NONE;
  std::size_t rows = 0;
  bool has_missing = false;
  bool has_quoted_missing = false;  // and these would be texts if the column became one of texts
  bool again = false;               // it is of texts, and some of its cells have been read as numbers
  Growing<std::uint8_t> bools, absent;
  Growing<std::int64_t> ints, ends;  // ends: of each text in `bytes`
  Growing<double> doubles;
  Growing<char> bytes;
  std::string first_text;  // if it is TEXT: where the first cell is that is neither missing nor a number, and the cell
};

// What is known of a file before it is read.
struct CsvRules {
  std::string file;  // its name, for errors
  CsvDialect dialect;
  bool header = true;
  bool decimal_comma = false;
  bool hint_of_separator = false;  // refuse a header that looks as if it had another separator
  std::uint64_t skip_lines = 0;    // before the header
  std::size_t most_rows = SIZE_MAX;
  std::vector<std::string> names = {};                      // instead of those of the header; empty: the header's
  std::vector<std::string> columns = {};                    // those that are read; empty: all
  std::vector<std::pair<std::string, CsvKind>> kinds = {};  // of some columns
  std::vector<std::string> missing = {};                    // texts of missing cells
  bool quoted_missing = false;                              // also if they are quoted, in a column of texts
  std::size_t bytes_at_once = std::size_t{512} << 10;       // a piece fits into the caches, with what is read of it
};

struct CsvContents {
  std::vector<std::string> names;
  std::vector<CsvColumn> columns;
};

// Calls `work` once, or on several threads at the same time. It does not throw.
using OnThreads = std::function<void(const std::function<void()>& work)>;
using OpenBytes = std::function<std::unique_ptr<ByteStream>()>;

// Reads a file in pieces of whole records, several at the same time. A file in which a column turns out to be text
// after some of its cells have been read as numbers is opened a second time, for such columns alone. Throws DataError
// with file, line and column, for the first one of several errors; ConfigError for a name in the rules that is no
// column.
CsvContents read_csv_contents(const OpenBytes& open, const CsvRules& rules, const OnThreads& on_threads);

// The number that all of the text is, without the locale; nothing if it is none.
std::optional<double> csv_number(std::string_view text, bool decimal_comma = false);

}  // namespace composer::data::detail
