#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "composer/core/error.h"
#include "composer/data/byte_stream.h"
#include "composer/data/table/csv_columns.h"
#include "composer/util/random.h"
#include "tests/support/doctest.h"

namespace composer::csv_cells_test {

using namespace data::detail;
using Cell = std::optional<std::string>;  // nullopt: missing
using Rows = std::vector<std::vector<Cell>>;

namespace {

class Bytes final : public ByteStream {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  std::size_t read(void* to, std::size_t count) override {
    const std::size_t size = std::min(count, bytes_.size() - at_);
    std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
    return size;
  }
  std::uint64_t at_most() const override { return bytes_.size(); }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

CsvContents read(const std::string& bytes, CsvRules rules) {
  rules.file = "file";
  rules.missing = {"", "NA"};
  return read_csv_contents([&] { return std::make_unique<Bytes>(bytes); }, rules,
                           [](const std::function<void()>& work) {
                             std::vector<std::thread> threads;
                             for (int i = 0; i < 3; ++i) threads.emplace_back(work);
                             for (std::thread& thread : threads) thread.join();
                           });
}

Cell text_at(const CsvColumn& column, std::size_t row) {
  if (column.absent[row]) return std::nullopt;
  const std::int64_t begin = row == 0 ? 0 : column.ends[row - 1];
  return std::string(column.bytes.data() + begin, static_cast<std::size_t>(column.ends[row] - begin));
}

// A text that needs all that quotes are for, or one that must not be taken for a quote.
std::string random_text(RandomStream& random) {
  static const std::vector<std::string> kParts = {"a", "\"", ",",    "\n", "\r\n", "#", " ",
                                                  "é", "7",  "\"\"", ";",  "\r",   "NA"};
  std::string text;
  for (std::int64_t i = static_cast<std::int64_t>(random.below(6)); i > 0; --i)
    text += kParts[random.below(kParts.size())];
  return text;
}

std::string quoted(const std::string& text) {
  std::string cell = "\"";
  for (char c : text) cell += c == '"' ? std::string("\"\"") : std::string(1, c);
  return cell + '"';
}

bool is_blank(const std::string& text) { return text.find_first_not_of(' ') == std::string::npos; }

// How the text may stand in a file. A cell that needs no quotes may have them.
std::string as_cell(const std::string& text, RandomStream& random) {
  const bool needs = text.find_first_of(",\n\r") != std::string::npos || text.starts_with('"') || text.starts_with('#');
  return needs || random.below(3) == 0 ? quoted(text) : text;
}

}  // namespace

TEST_CASE("Texts in quotes are read as they were written, wherever the pieces of the file are cut") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    RandomStream random(hash64(seed, 1));
    const std::size_t width = 1 + random.below(4), height = 1 + random.below(12);
    std::string file;
    for (std::size_t c = 0; c < width; ++c) file += (c ? ",n" : "n") + std::to_string(c);
    file += "\n";
    Rows rows;
    for (std::size_t r = 0; r < height; ++r) {
      if (random.below(4) == 0) {
        static const std::vector<std::string> kIgnored = {"# \"a comment\n", "\n", "  \n", "\t\r\n", "\r\n"};
        file += kIgnored[random.below(kIgnored.size())];
      }
      rows.emplace_back();
      for (std::size_t c = 0; c < width; ++c) {
        const std::string text = random_text(random);
        std::string cell = as_cell(text, random);
        if (width == 1 && is_blank(cell)) cell = quoted(text);
        file += (c ? "," : "") + cell;
        // A cell of spaces is empty, and an empty one is missing, but not in quotes.
        const std::size_t begin = std::min(cell.find_first_not_of(' '), cell.size());
        const std::string bare = cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin);
        rows.back().push_back(bare.empty() || bare == "NA" ? Cell() : Cell(text));
      }
      if (r + 1 < height || random.below(2)) file += random.below(2) ? "\n" : "\r\n";
    }
    if (file.ends_with('\n') && random.below(2)) file += random.below(2) ? "\r" : "  ";
    CsvRules rules{.dialect = {.comment = '#'}};
    for (std::size_t c = 0; c < width; ++c) rules.kinds.emplace_back("n" + std::to_string(c), CsvKind::TEXT);
    rules.bytes_at_once = 1 + random.below(40);
    CAPTURE(file);
    const CsvContents contents = read(file, rules);
    REQUIRE(contents.columns.size() == width);
    for (std::size_t c = 0; c < width; ++c) {
      REQUIRE(contents.columns[c].rows == height);
      for (std::size_t r = 0; r < height; ++r) CHECK(text_at(contents.columns[c], r) == rows[r][c]);
    }
  }
}

TEST_CASE("The type of a column is that of all its cells, wherever the one is that decides it") {
  const struct {
    std::string first, other;
    CsvKind kind;
  } cases[] = {
      {"1", "2", CsvKind::INT64},      {"1", "2.5", CsvKind::DOUBLE},
      {"1.5", "2", CsvKind::DOUBLE},   {"1", "x", CsvKind::TEXT},
      {"1.5", "x", CsvKind::TEXT},     {"true", "FALSE", CsvKind::BOOL},
      {"true", "1", CsvKind::TEXT},    {"1", "true", CsvKind::TEXT},
      {"true", "x", CsvKind::TEXT},    {"", "1", CsvKind::INT64},
      {"1", "", CsvKind::INT64},       {"", "x", CsvKind::TEXT},
      {"", "", CsvKind::NONE},         {"", "1.5", CsvKind::DOUBLE},
      {"", "false", CsvKind::BOOL},    {"1", "99999999999999999999", CsvKind::DOUBLE},
      {"007", "1e2", CsvKind::DOUBLE}, {"x", "1", CsvKind::TEXT},
      {"1", "0x10", CsvKind::TEXT},    {"1", "--1", CsvKind::TEXT},
      {"1", "+-1", CsvKind::TEXT},     {"+1", " 2 ", CsvKind::INT64},
  };
  for (const auto& [first, other, kind] : cases)
    for (std::size_t place = 0; place < 30; ++place)
      for (std::size_t at_once : {7, 64, 10000}) {
        CAPTURE(first);
        CAPTURE(other);
        CAPTURE(place);
        CAPTURE(at_once);
        std::string file = "k,v\n";
        for (std::size_t i = 0; i < 30; ++i) file += "0," + (i == place ? other : first) + "\n";
        const CsvContents contents = read(file, {.bytes_at_once = at_once});
        const CsvColumn& column = contents.columns.at(1);
        CHECK(column.kind == kind);
        CHECK(contents.columns.at(0).kind == CsvKind::INT64);
        REQUIRE(column.rows == 30);
        if (kind != CsvKind::TEXT) continue;
        for (std::size_t i = 0; i < 30; ++i) CHECK(text_at(column, i).value_or("") == (i == place ? other : first));
        if (first == "1" && other != "true")
          CHECK(column.first_text == "line " + std::to_string(place + 2) + " has \"" + other + '"');
      }
}

TEST_CASE("A quoted cell is missing in a column of numbers, and a text in one of texts, wherever that is known") {
  for (std::size_t place = 0; place < 30; ++place)
    for (std::size_t at_once : {7, 64, 10000})
      for (const char* other : {"x", "5", "true", "\"\""})
        for (const bool quoted_missing : {false, true}) {
          CAPTURE(place);
          CAPTURE(at_once);
          std::string file = "k,v\n";
          for (std::size_t i = 0; i < 30; ++i)
            file += "0," + std::string(i == place ? other : i % 2 ? "\"NA\"" : "NA") + "\n";
          const CsvContents contents = read(file, {.quoted_missing = quoted_missing, .bytes_at_once = at_once});
          const CsvColumn& column = contents.columns.at(1);
          CHECK((column.kind == CsvKind::TEXT) == (*other == 'x'));
          CHECK(column.has_missing);
          REQUIRE(column.rows == 30);
          if (column.kind != CsvKind::TEXT) continue;
          for (std::size_t i = 0; i < 30; ++i)
            CHECK(text_at(column, i) == (i == place ? Cell("x") : i % 2 && !quoted_missing ? Cell("NA") : Cell()));
        }
}

TEST_CASE("Threads find many columns that become texts in one piece, and lose none of their cells") {
  constexpr std::size_t kWidth = 70, kHeight = 40;
  for (std::size_t round = 0; round < 30; ++round) {
    std::string file;
    for (std::size_t c = 0; c < kWidth; ++c) file += (c ? ",n" : "n") + std::to_string(c);
    file += '\n';
    for (std::size_t r = 0; r < kHeight; ++r)
      for (std::size_t c = 0; c < kWidth; ++c)
        file += std::string(r >= 20 + c % 3 ? "x" : "1") + (c + 1 < kWidth ? ',' : '\n');
    const CsvContents contents = read(file, {.bytes_at_once = 200 + 20 * round});
    for (std::size_t c = 0; c < kWidth; ++c) {
      const CsvColumn& column = contents.columns.at(c);
      REQUIRE(column.kind == CsvKind::TEXT);
      REQUIRE(column.rows == kHeight);
      REQUIRE(column.ends.size() == kHeight);
      CHECK(column.bytes.size() == kHeight);
    }
  }
}

TEST_CASE("Numbers are those that the C library reads, to the last bit") {
  std::string file = "v\n0.5\n";
  std::vector<double> numbers{0.5};
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t bits = hash64(i, 3);
    double number = 0;
    std::memcpy(&number, &bits, sizeof number);
    if (!std::isfinite(number)) number = static_cast<double>(bits) * 1e-9;
    char text[64];
    std::snprintf(text, sizeof text, i % 2 ? "%.17g" : "%.6e", number);
    file += std::string(text) + '\n';
    numbers.push_back(std::strtod(text, nullptr));
  }
  const std::string kManyDigits(6000, '7'), kManyZeros = "0." + std::string(6000, '0') + "1";
  for (const auto& [text, number] :
       {std::pair("1e999", HUGE_VAL), std::pair("-1e999", -HUGE_VAL), std::pair("1e-999", 0.0),
        std::pair("inf", HUGE_VAL), std::pair("4.9e-324", 4.9e-324), std::pair("1e5000", HUGE_VAL),
        std::pair("-0.5e+99999999999999999999", -HUGE_VAL), std::pair("1e-5000", 0.0),
        std::pair("5e-99999999999999999999", 0.0), std::pair("0.0001e400", HUGE_VAL), std::pair("1000e-400", 0.0),
        std::pair(kManyDigits.c_str(), HUGE_VAL), std::pair(kManyZeros.c_str(), 0.0)}) {
    file += std::string(text) + '\n';
    numbers.push_back(number);
  }
  const CsvContents contents = read(file, {.bytes_at_once = 1000});
  const CsvColumn& column = contents.columns.at(0);
  REQUIRE(column.kind == CsvKind::DOUBLE);
  REQUIRE(column.rows == numbers.size());
  CHECK(std::memcmp(column.doubles.data(), numbers.data(), numbers.size() * sizeof(double)) == 0);
}

TEST_CASE("The line of an error is right in every piece of a file") {
  for (std::size_t bad = 0; bad < 40; ++bad)
    for (std::size_t at_once : {5, 33, 10000}) {
      std::string file = "# first\na,b\n";
      for (std::size_t i = 0; i < 40; ++i) file += i == bad ? "1\n" : "\"x\ny\",2\n";
      const CsvRules rules{.dialect = {.comment = '#'}, .bytes_at_once = at_once};
      CHECK_THROWS_WITH_AS(
          read(file, rules),
          doctest::Contains(("file:" + std::to_string(3 + 2 * bad) + ": has 1 cell, and there are 2").c_str()),
          DataError);
    }
}

}  // namespace composer::csv_cells_test
