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
  // The character between cells. Empty: a tab in files named .tsv and .tab, a comma in others.
  std::string separator = {};
  bool header = true;  // the first record has the names of the columns; false: they are called "0", "1" and so on
  std::vector<std::string> names = {};           // names of all columns, instead of those in the file
  std::vector<std::string> columns = {};         // columns to read, in this order; empty: all
  std::map<std::string, ColumnType> types = {};  // types of columns, by name; those of others are detected
  std::vector<std::string> missing = {};         // more texts that stand for a missing cell, such as {"?", "-999"}
  // Empty cells, NA, N/A, n/a, #N/A, <NA>, NaN, nan, null, NULL and None are missing.
  bool keep_default_missing = true;
  bool quoted_missing = false;  // such a text is also missing if it stands in quotes in a column of texts
  std::string quote = "\"";     // surrounds cells that contain a separator, a quote or the end of a line; empty: none
  std::string comment = {};     // a character; lines that begin with it are skipped
  bool decimal_comma = false;   // numbers are written as 1,5; needs another separator than the comma
  std::int64_t skip_lines = 0;  // number of lines to skip before the header
  std::optional<std::int64_t> max_rows = {};  // the most rows to read; unset: all
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
