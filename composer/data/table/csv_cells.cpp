#include "composer/data/table/csv_cells.h"

#include <algorithm>
#include <bit>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"

namespace composer::data::detail {

// The places of separators and of lines' ends in a block. 64 bytes are compared at once, because a loop over the bytes
// of each cell, whose lengths the processor cannot predict, takes a third of the time that reading a file takes.
class CellEnds {
 public:
  CellEnds(std::string_view block, char separator) : block_(block), separator_(separator) { look_at(0); }

  // The first place from `from` on, or the end of the block. `from` must not become smaller.
  std::size_t next(std::size_t from) {
    if (from >= base_ + kAtOnce) {
      if (from >= block_.size()) return block_.size();
      look_at(from / kAtOnce * kAtOnce);
    }
    std::uint64_t ends = from > base_ ? ends_ & (~std::uint64_t{0} << (from - base_)) : ends_;
    while (ends == 0) {
      if (base_ + kAtOnce >= block_.size()) return block_.size();
      look_at(base_ + kAtOnce);
      ends = ends_;
    }
    return base_ + static_cast<std::size_t>(std::countr_zero(ends));
  }

 private:
  static constexpr std::size_t kAtOnce = 64;

  void look_at(std::size_t base) {
    base_ = base;
    if (block_.size() - base >= kAtOnce) {
      ends_ = ends_in(block_.data() + base);
    } else {
      char last[kAtOnce] = {};
      std::memcpy(last, block_.data() + base, block_.size() - base);
      ends_ = ends_in(last) & ~(~std::uint64_t{0} << (block_.size() - base));
    }
  }
  std::uint64_t ends_in(const char* bytes) const {
    std::uint64_t ends = 0;
#ifdef __SSE2__
    const __m128i separator = _mm_set1_epi8(separator_), line_end = _mm_set1_epi8('\n');
    for (unsigned i = 0; i < 4; ++i) {
      const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + std::size_t{16} * i));
      const __m128i found = _mm_or_si128(_mm_cmpeq_epi8(some, separator), _mm_cmpeq_epi8(some, line_end));
      ends |= std::uint64_t{static_cast<std::uint16_t>(_mm_movemask_epi8(found))} << (16 * i);
    }
#else
    for (std::size_t i = 0; i < kAtOnce; ++i) ends |= std::uint64_t{bytes[i] == separator_ || bytes[i] == '\n'} << i;
#endif
    return ends;
  }

  std::string_view block_;
  char separator_;
  std::size_t base_ = 0;
  std::uint64_t ends_ = 0;
};

namespace {

std::size_t last_line_end(std::string_view bytes) {
  const void* const found = bytes.empty() ? nullptr : ::memrchr(bytes.data(), '\n', bytes.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - bytes.data()) : std::string_view::npos;
}

}  // namespace

bool is_ascii(std::string_view text) {
  unsigned char seen = 0;
  for (char c : text) seen = static_cast<unsigned char>(seen | static_cast<unsigned char>(c));
  return seen < 0x80;
}

std::uint64_t lines_in(std::string_view bytes) {
  constexpr std::size_t kAtOnce = 128;  // fewer than a byte can count, for compilers that count in bytes
  std::uint64_t lines = 0;
  for (; bytes.size() >= kAtOnce; bytes.remove_prefix(kAtOnce)) {
    std::uint8_t some = 0;
    for (std::size_t i = 0; i < kAtOnce; ++i) some = static_cast<std::uint8_t>(some + (bytes[i] == '\n' ? 1 : 0));
    lines += some;
  }
  return lines + static_cast<std::uint64_t>(std::ranges::count(bytes, '\n'));
}

std::uint64_t CsvChunk::line_of(const char* place) const {
  return first_line + lines_in(bytes.substr(0, static_cast<std::size_t>(place - bytes.data())));
}

std::string_view CsvCells::text(const CsvCell& cell, char quote, std::string& into) const {
  const std::string_view text = raw(cell);
  if (!cell.has_quotes) return text;
  into.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    into += text[i];
    if (text[i] == quote) ++i;
  }
  return into;
}

CsvSplitter::CsvSplitter(const CsvDialect& dialect) : dialect_(dialect) {}

// A quote within a cell that does not begin with one is an ordinary character, and so is one in a comment.
std::size_t CsvSplitter::opening_quote(std::string_view bytes, std::size_t from) const {
  if (!dialect_.quote) return bytes.size();
  for (std::size_t at = from; (at = bytes.find(*dialect_.quote, at)) != std::string_view::npos; ++at) {
    if (at > 0 && bytes[at - 1] != dialect_.separator && bytes[at - 1] != '\n') continue;
    if (dialect_.comment) {
      const std::size_t line_end = at > from ? last_line_end(bytes.substr(from, at - from)) : std::string_view::npos;
      const std::size_t line = line_end != std::string_view::npos ? from + line_end + 1 : from;
      if ((line_end != std::string_view::npos || from == 0) && bytes[line] == *dialect_.comment) continue;
    }
    return at;
  }
  return bytes.size();
}

// `from` is after the opening quote. Returns npos if there is no closing one.
std::size_t CsvSplitter::after_closing_quote(std::string_view bytes, std::size_t from, bool& doubled) const {
  for (std::size_t at = from; (at = bytes.find(*dialect_.quote, at)) != std::string_view::npos; at += 2) {
    if (at + 1 == bytes.size() || bytes[at + 1] != *dialect_.quote) return at + 1;
    doubled = true;
  }
  return std::string_view::npos;
}

std::size_t CsvSplitter::whole_records(std::string_view bytes) const {
  std::size_t whole = 0;
  for (std::size_t at = 0; at != std::string_view::npos;) {
    const std::size_t quote = opening_quote(bytes, at);
    if (const std::size_t end = last_line_end(bytes.substr(at, quote - at)); end != std::string_view::npos)
      whole = at + end + 1;
    if (quote == bytes.size()) break;
    bool ignored = false;
    at = after_closing_quote(bytes, quote + 1, ignored);
  }
  return whole;
}

bool CsvSplitter::skip_lines_without_cells(std::string_view block, std::size_t& at) const {
  const auto is_blank = [&](char c) { return (c == ' ' || c == '\t') && c != dialect_.separator; };
  while (at < block.size()) {
    if (block[at] == dialect_.comment) {
      const std::size_t end = block.find('\n', at);
      at = end == std::string_view::npos ? block.size() : end + 1;
      continue;
    }
    std::size_t end = at;
    while (end < block.size() && is_blank(block[end])) ++end;
    if (end < block.size() && block[end] == '\r' && (end + 1 == block.size() || block[end + 1] == '\n')) ++end;
    if (end < block.size() && block[end] != '\n') return true;
    at = std::min(end + 1, block.size());
  }
  return false;
}

void CsvSplitter::read_quoted(const CsvChunk& chunk, std::string_view block, std::size_t& at, CsvCell& cell) const {
  const char* const bytes = block.data();
  const std::size_t begin = at + 1, size = block.size();
  bool doubled = false;
  at = after_closing_quote(block, begin, doubled);
  if (at == std::string_view::npos)
    throw DataError(chunk.file, ":", chunk.line_of(bytes + begin), ": a quote is opened and never closed",
                    "; if quotes are ordinary characters in this file, set .quote = \"\"");
  cell.offset = static_cast<std::uint32_t>(begin);
  cell.size = static_cast<std::uint32_t>(at - 1 - begin) & 0x7FFFFFFFU;
  cell.has_quotes = doubled ? 1 : 0;
  if (at < size && bytes[at] == '\r' && (at + 1 == size || bytes[at + 1] == '\n')) ++at;
  if (at < size && bytes[at] != dialect_.separator && bytes[at] != '\n')
    throw DataError(chunk.file, ":", chunk.line_of(bytes + at), ": there is text after a closing quote: ",
                    formats::shown(block.substr(begin - 1, std::min<std::size_t>(at + 2 - begin, 40))),
                    "; a quote within a quoted cell is written twice");
}

inline bool CsvSplitter::read_cell(const CsvChunk& chunk, std::string_view block, CellEnds& ends, std::size_t& at,
                                   CsvCell& cell) const {
  const char* const bytes = block.data();
  const std::size_t begin = at;
  if (dialect_.quote && at < block.size() && bytes[at] == *dialect_.quote) {
    read_quoted(chunk, block, at, cell);
  } else {
    std::size_t end = at = ends.next(at);
    if (end > begin && bytes[end - 1] == '\r' && (at == block.size() || bytes[at] == '\n')) --end;
    cell.offset = static_cast<std::uint32_t>(begin);
    cell.size = static_cast<std::uint32_t>(end - begin) & 0x7FFFFFFFU;
    cell.has_quotes = 0;
  }
  return at == block.size() || bytes[at++] == '\n';
}

bool CsvSplitter::next(const CsvChunk& chunk, std::string_view block, std::size_t& at,
                       std::vector<CsvCell>& record) const {
  record.clear();
  if (!skip_lines_without_cells(block, at)) return false;
  CellEnds ends(block, dialect_.separator);
  for (bool last = false; !last;) last = read_cell(chunk, block, ends, at, record.emplace_back());
  return true;
}

void CsvSplitter::split(const CsvChunk& chunk, const std::vector<int>& places, std::size_t width, std::size_t most,
                        CsvCells& into) const {
  const std::string_view block = chunk.bytes;
  into.block = block;
  into.rows = 0;
  into.is_ascii = is_ascii(block);
  into.cells.clear();
  CellEnds ends(block, dialect_.separator);
  for (std::size_t at = 0; into.rows < most && skip_lines_without_cells(block, at); ++into.rows) {
    const std::size_t begin = at;
    CsvCell* const row = into.cells.extend(width);
    std::size_t count = 0;
    for (bool last = false; !last; ++count) {
      CsvCell cell;
      last = read_cell(chunk, block, ends, at, cell);
      if (count < places.size() && places[count] >= 0) row[places[count]] = cell;
    }
    if (count != places.size())
      throw DataError(chunk.file, ":", chunk.line_of(block.data() + begin), ": has ", count,
                      count == 1 ? " cell" : " cells", ", and there are ", places.size(), " columns",
                      count > places.size() ? "; a cell that contains the separator must be quoted" : "");
  }
}

}  // namespace composer::data::detail
