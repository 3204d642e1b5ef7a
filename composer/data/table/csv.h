#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/table/table.h"

namespace composer::data {

struct CsvOptions {
  std::string separator = {};           // one character; empty: a tab in files named .tsv and .tab, a comma in others
  bool header = true;                   // the first record has the names of the columns; if not, they are "0", "1", ...
  std::vector<std::string> names = {};  // names of all columns, instead of those
  std::vector<std::string> columns = {};         // those that are read, in this order; empty: all
  std::map<std::string, ColumnType> types = {};  // of columns whose type is not to be found in their cells
  std::vector<std::string> missing = {};         // texts of missing cells, besides the following ones
  // "", NA, N/A, n/a, #N/A, <NA>, NaN, nan, null, NULL and None are missing cells.
  bool keep_default_missing = true;
  bool quoted_missing = false;  // in a column of texts, also a quoted cell is missing that has such a text
  std::string quote = "\"";     // around cells that contain a separator, a quote or a line's end; empty: none
  std::string comment = {};     // one character; lines that begin with it are left out
  bool decimal_comma = false;   // numbers such as 1,5
  std::int64_t skip_lines = 0;  // lines before the header that are left out
  std::optional<std::int64_t> max_rows = {};  // so many rows are read; unset: all
};

// Reads a file of separated values (RFC 4180; gzip-compressed if the name ends in .gz), which must be UTF-8, on
// libtorch's threads. Without a given type, a column is the first of these that all its cells are: BOOL (true, false),
// INT64, DOUBLE, TEXT. BOOL and INT64 columns with missing cells become DOUBLE; warns if an integer of such a column is
// above 2^53, which a double does not hold exactly. A file of a header alone is a table without rows. Throws DataError
// with file, line and column for a cell that is not of its column's type, and for a row with more or fewer cells than
// there are columns; ConfigError for options that do not fit the file.
COMPOSER_EXPORT Table read_csv(const std::filesystem::path& file, CsvOptions options = {});

// Writes the table atomically, with all digits of numbers. Missing cells are empty, and texts that would be read as
// missing cells are quoted. The separator is a tab if the name ends in .tsv or .tab. Creates missing folders. Throws
// Error on an I/O error.
COMPOSER_EXPORT void write_csv(const Table& table, const std::filesystem::path& file);
// Each tensor [N] is a column, and "x" [N, K] the columns "x_0" to "x_K-1".
COMPOSER_EXPORT void write_csv(const Batch& batch, const std::filesystem::path& file);

}  // namespace composer::data
