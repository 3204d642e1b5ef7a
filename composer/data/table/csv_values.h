#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "composer/data/table/csv_cells.h"
#include "composer/data/table/csv_columns.h"

namespace composer::data::detail {

// Texts that stand for a missing cell. Spaces around them do not count.
class MissingTexts {
 public:
  explicit MissingTexts(const std::vector<std::string>& texts);
  bool contains(std::string_view cell) const {
    if (cell.empty()) return empty_;
    return cell.size() <= longest_ && begins_[static_cast<unsigned char>(cell.front())] && find(cell);
  }

 private:
  bool find(std::string_view cell) const;

  std::vector<std::string> texts_;
  std::array<bool, 256> begins_{};
  std::size_t longest_ = 0;
  bool empty_ = false;
};

// The values of a column in a block of records.
struct CsvPiece {
  CsvKind kind = CsvKind::NONE;
  bool has_missing = false;
  bool has_quoted_missing = false;  // some of these cells are quoted, so that they are texts in a column of texts
  std::vector<std::uint8_t> bools, absent;
  std::vector<std::int64_t> ints, ends;
  std::vector<double> doubles;
  std::string bytes;
  std::string_view first_text = {};  // in the chunk
};

// Makes values of the cells of one column.
class CsvValues {
 public:
  CsvValues(const CsvRules& rules, const MissingTexts& missing) : rules_(rules), missing_(missing) {}

  // Reads the cells of column `column` of `width`. The kind becomes the first one from `least` on that fits all of
  // them. If the kind is `fixed`, it is `least`, and another cell is an error, which names the column.
  void read(const CsvChunk& chunk, const CsvCells& cells, std::size_t column, std::size_t width, CsvKind least,
            bool fixed, const std::string& name, CsvPiece& piece) const;

 private:
  struct Column;  // the cells
  CsvKind kind_of(std::string_view cell) const;
  bool is_missing(const Column& column, std::size_t row, CsvPiece& piece) const;
  // Reads all cells as of this kind. Returns the number of the first one that is not, or that of all.
  std::size_t read_bools(const Column& column, CsvPiece& piece) const;
  std::size_t read_ints(const Column& column, CsvPiece& piece) const;
  std::size_t read_doubles(const Column& column, CsvPiece& piece) const;
  void read_texts(const CsvChunk& chunk, const Column& column, const std::string& name, CsvPiece& piece) const;
  std::size_t read_as(CsvKind kind, const CsvChunk& chunk, const Column& column, const std::string& name,
                      CsvPiece& piece) const;

  const CsvRules& rules_;
  const MissingTexts& missing_;
};

// The first kind that has the values of both.
CsvKind joined(CsvKind a, CsvKind b);
const char* name_of(CsvKind kind);

std::string_view without_spaces(std::string_view text);

// The text in quotes, on one line, and shortened if it is long.
std::string shown_cell(std::string_view text);

}  // namespace composer::data::detail
