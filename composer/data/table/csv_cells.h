#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/data/table/growing.h"

namespace composer::data::detail {

// The characters of a file of separated values.
struct CsvDialect {
  char separator = ',';
  std::optional<char> quote =
      '"';  // a cell that begins with it ends with it; twice in such a cell, it stands for itself
  std::optional<char> comment = {};  // lines that begin with it are left out
};

std::uint64_t lines_in(std::string_view bytes);
bool is_ascii(std::string_view text);

// Whole records of a file, in memory.
struct CsvChunk {
  const std::string& file;  // its name, for errors
  std::string_view bytes;
  std::uint64_t first_line = 1;  // its number in the file

  std::uint64_t line_of(const char* place) const;
};

struct CsvCell {
  std::uint32_t offset;  // of its text, without quotes, in the bytes of the block
  std::uint32_t size : 31;
  std::uint32_t has_quotes : 1;  // in its text, where each is written twice
};

// The cells of some records, row by row.
struct CsvCells {
  std::string_view block;
  Growing<CsvCell> cells;
  std::size_t rows = 0;
  bool is_ascii = false;  // all of the block

  std::string_view raw(const CsvCell& cell) const { return block.substr(cell.offset, cell.size); }
  bool is_quoted(const CsvCell& cell, std::optional<char> quote) const {
    return cell.offset > 0 && quote == block[cell.offset - 1];  // otherwise a separator is there, or a line's end
  }
  // As raw(), with single quotes; `into` is where they are written if there are any.
  std::string_view text(const CsvCell& cell, char quote, std::string& into) const;
};

// The most bytes that a record may have. Thereby a quote that is never closed does not make a record of the whole file.
inline constexpr std::size_t kLongestRecord = std::size_t{64} << 20;

class CellEnds;

// Finds records and cells. Lines end with \n or \r\n.
class CsvSplitter {
 public:
  explicit CsvSplitter(const CsvDialect& dialect);

  const CsvDialect& dialect() const { return dialect_; }

  // `bytes` begins with a record. Returns the end of the last record that is whole; 0 if there is none.
  std::size_t whole_records(std::string_view bytes) const;

  // Reads the next record that is neither empty nor a comment. Sets `at` to what follows. False: there is none.
  bool next(const CsvChunk& chunk, std::string_view block, std::size_t& at, std::vector<CsvCell>& record) const;

  // Reads the records of a chunk, at most `most`, each of which must have places.size() cells. places[i] is
  // where cell i is put in a row of `into`, or -1 for one that is left out; `width` is the length of a row. Throws
  // DataError.
  void split(const CsvChunk& chunk, const std::vector<int>& places, std::size_t width, std::size_t most,
             CsvCells& into) const;

 private:
  std::size_t opening_quote(std::string_view bytes, std::size_t from) const;
  std::size_t after_closing_quote(std::string_view bytes, std::size_t from, bool& doubled) const;
  bool skip_lines_without_cells(std::string_view block, std::size_t& at) const;
  void read_quoted(const CsvChunk& chunk, std::string_view block, std::size_t& at, CsvCell& cell) const;
  // Reads a cell. Returns whether it is the last one of its record; `at` is then after the end of the line.
  bool read_cell(const CsvChunk& chunk, std::string_view block, CellEnds& ends, std::size_t& at, CsvCell& cell) const;

  CsvDialect dialect_;
};

}  // namespace composer::data::detail
