#include "composer/data/table/csv.h"

#include <limits>

#include <ATen/ATen.h>

#include <sys/resource.h>

#include "composer/core/error.h"
#include "composer/util/random.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/idx_files.h"
#include "tests/support/text.h"
#include "tests/support/warnings.h"

namespace composer::csv_test {

using namespace test;
using data::ColumnType;
using data::CsvOptions;
using data::read_csv;
using data::Table;
using data::write_csv;

namespace {

Table read_text(const std::string& text, const CsvOptions& options = {}, const char* name = "t.csv") {
  const TemporaryFolder folder;
  write(folder / name, text);
  return read_csv(folder / name, options);
}

std::vector<std::string> texts(const Table& table, const char* name) {
  std::vector<std::string> all;
  for (std::int64_t row = 0; row < table.rows(); ++row) all.emplace_back(table.texts(name)[row]);
  return all;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && at::allclose(a, b, 0, 0, /*equal_nan=*/true);
}

}  // namespace

TEST_CASE("A file of numbers, truths and texts becomes columns of the types of their cells") {
  const Table table = read_text(
      "city,area,rooms,balcony,price\n"
      "Oslo,80.5,3,true,100\n"
      "\"Rio, Brazil\",NA,2,false,\n"
      "\"the \"\"old\"\" one\",61,4,true,70\n");
  CHECK(table.rows() == 3);
  CHECK(table.names() == std::vector<std::string>{"city", "area", "rooms", "balcony", "price"});
  CHECK(texts(table, "city") == std::vector<std::string>{"Oslo", "Rio, Brazil", "the \"old\" one"});
  CHECK(same(table["area"], at::tensor({80.5, kNan, 61.0}, at::kDouble)));
  CHECK(same(table["rooms"], at::tensor({3, 2, 4}, at::kLong)));
  CHECK(same(table["balcony"], at::tensor({1, 0, 1}).to(at::kBool)));
  CHECK(same(table["price"], at::tensor({100.0, kNan, 70.0}, at::kDouble)));
  CHECK(table.missing("price").equal(at::tensor({0, 1, 0}).to(at::kBool)));
}

TEST_CASE("Each option changes what is read") {
  CHECK(
      same(read_text("a;b\n1,5;2\n", {.separator = ";", .decimal_comma = true})["a"], at::tensor({1.5}, at::kDouble)));
  CHECK(same(read_text("a\tb\n1\t2\n", {}, "t.tsv")["b"], at::tensor({2}, at::kLong)));
  CHECK(same(read_text("1,2\n", {.header = false})["1"], at::tensor({2}, at::kLong)));
  CHECK(same(read_text("1,2\n", {.header = false, .names = {"x", "y"}})["y"], at::tensor({2}, at::kLong)));
  CHECK(same(read_text("a,b\n1,2\n", {.names = {"x", "y"}})["y"], at::tensor({2}, at::kLong)));
  CHECK(read_text("a,b,c\n1,2,3\n", {.columns = {"c", "a"}}).names() == std::vector<std::string>{"c", "a"});
  CHECK(read_text("a,b\n1,2\n", {.types = {{"a", ColumnType::FLOAT}}}).type("a") == ColumnType::FLOAT);
  CHECK(texts(read_text("zip\n00123\n", {.types = {{"zip", ColumnType::TEXT}}}), "zip") ==
        std::vector<std::string>{"00123"});
  CHECK(
      same(read_text("a\n?\n-999\n1\n", {.missing = {"?", "-999"}})["a"], at::tensor({kNan, kNan, 1.0}, at::kDouble)));
  CHECK(same(read_text("a\n?\nNA\n1\n", {.missing = {"?"}})["a"], at::tensor({kNan, kNan, 1.0}, at::kDouble)));
  CHECK(texts(read_text("a,b\nNA,1\n?,1\n,1\n", {.missing = {"?"}, .keep_default_missing = false}), "a") ==
        std::vector<std::string>{"NA", "", ""});
  CHECK(read_text("a,b\nx,1\nNA,1\n\"NA\",1\n\"\",1\n").missing("a").equal(at::tensor({0, 1, 0, 0}).to(at::kBool)));
  CHECK(read_text("a,b\nx,1\nNA,1\n\"NA\",1\n\"\",1\n", {.quoted_missing = true})
            .missing("a")
            .equal(at::tensor({0, 1, 1, 1}).to(at::kBool)));
  CHECK(same(read_text("a,b\n\"1\",1\n\"\",1\n")["a"], at::tensor({1.0, kNan}, at::kDouble)));
  CHECK(texts(read_text("a\n\"x\n", {.quote = ""}), "a") == std::vector<std::string>{"\"x"});
  CHECK(texts(read_text("a,b\n'x,y',2\n", {.quote = "'"}), "a") == std::vector<std::string>{"x,y"});
  CHECK(read_text("a\n# no\n1\n", {.comment = "#"}).rows() == 1);
  CHECK(read_text("by hand\n\na\n1\n", {.skip_lines = 1}).names() == std::vector<std::string>{"a"});
  CHECK(same(read_text("a\n1\n2\nx\n", {.max_rows = 2})["a"], at::tensor({1, 2}, at::kLong)));
}

TEST_CASE("What other programs add to a file does not change its table") {
  const Table plain = read_text("a,b\n1,x\n2,y\n");
  for (const char* text :
       {"\xEF\xBB\xBF"
        "a,b\n1,x\n2,y\n",
        "a,b\r\n1,x\r\n2,y\r\n", "a,b\n1,x\n2,y", "\n\na,b\n\n1,x\n2,y\n\n", "\"a\",\"b\"\n\"1\",\"x\"\n\"2\",\"y\"\n",
        "a,b\r\n\"1\",\"x\"\r\n2,\"y\"\r\n", "a,b\n 1 ,x\n2,y\n", "a,b\n1,x\n2,y\n  ", "a,b\n1,x\n2,y\n\r",
        "  \na,b\n1,x\n\t \r\n2,y\n \r"}) {
    CAPTURE(text);
    const Table table = read_text(text);
    CHECK(table.names() == plain.names());
    CHECK(table["a"].equal(plain["a"]));
    CHECK(texts(table, "b") == texts(plain, "b"));
  }
  const Table unpacked = read_text(gzip("a,b\n1,x\n2,y\n"), {}, "t.csv.gz");
  CHECK(unpacked["a"].equal(plain["a"]));
  CHECK(read_text(gzip("a\tb\n1\tx\n"), {}, "t.tsv.gz").names().size() == 2);
  CHECK(read_text(",b\n0,1\n").names().front() == "Unnamed: 0");
}

TEST_CASE("Each malformed file is one line that names the file and the place") {
  struct Case {
    const char* bytes;
    const char* text;
    CsvOptions options = {};
    const char* name = "t.csv";
  };
  const std::string many(70 << 20, 'x');
  const std::string endless = "a\n\"" + many;
  const std::vector<Case> cases = {
      {"", "t.csv: is empty: it has no header"},
      {"\n\n", "t.csv: is empty: it has no header"},
      {"a,b\n1,2\n3\n", "t.csv:3: has 1 cell, and there are 2 columns"},
      {"a,b\n1,2,3\n",
       "t.csv:2: has 3 cells, and there are 2 columns; a cell that contains the separator must be quoted"},
      {"a,b\n\n\n1\n", "t.csv:4: has 1 cell"},
      {"a,b\n\"x\ny\",1\n1\n", "t.csv:4: has 1 cell"},
      {"a,b\n1,\"2\n", "t.csv:2: a quote is opened and never closed; if quotes are ordinary"},
      {"a,b\n1,\"2\n3,4\n5,6\n", "t.csv:2: a quote is opened and never closed"},
      {"a,b\n\"1\"2,3\n", "t.csv:2: there is text after a closing quote: \"1\"2"},
      {"\"a,b\n1,2\n", "t.csv:1: a quote is opened and never closed"},
      {endless.c_str(), "t.csv:2: a record begins here that has more than 64 MB: is a quote never closed?"},
      {"a,a\n1,2\n", "two columns are called \"a\""},
      {"a;b\n1;2\n", "t.csv: has one column, called \"a;b\"; if cells are separated by ';', set .separator = \";\""},
      {"a\tb\n1\t2\n", "set .separator = \"\\t\""},
      {"a,b\n1,2\n", "set .separator = \",\"", {}, "t.tsv"},
      {"a|b\n1|2\n", "set .separator = \"|\""},
      {"a,b\r1,2\r", "its lines end with CR alone"},
      {"\xFF\xFE"
       "a\0,\0",
       "t.csv: is UTF-16; convert it, as with iconv -f utf16 -t utf8"},
      {"a,b\n1,\xE9t\xE9\n", "t.csv:2: b is "},
      {"a,b\n1,\xE9t\xE9\n", "which is not UTF-8; convert the file, as with iconv -f latin1"},
      {"a,\xE9\n1,2\n", "the name of column 1 is not UTF-8"},
      {"a,b\n1,2\n3,4.5\n", "t.csv:3: b is \"4.5\", expected an integer", {.types = {{"b", ColumnType::INT64}}}},
      {"a,b\n1,2\n3,x\n", "t.csv:3: b is \"x\", expected a number", {.types = {{"b", ColumnType::DOUBLE}}}},
      {"a,b\n1,2\n3,1e\n", "t.csv:3: b is \"1e\", expected a number", {.types = {{"b", ColumnType::FLOAT}}}},
      {"a,b\n1,true\n3,1\n", "t.csv:3: b is \"1\", expected true or false", {.types = {{"b", ColumnType::BOOL}}}},
      {"a,b\n1,2\n3,\n",
       "t.csv:3: b is missing, expected an integer; columns of missing cells can be of type DOUBLE",
       {.types = {{"b", ColumnType::INT64}}}},
      {"a,b\n1,true\n3,NA\n", "t.csv:3: b is missing, expected true or false", {.types = {{"b", ColumnType::BOOL}}}},
      {"a,b\n1,9223372036854775808\n", "expected an integer", {.types = {{"b", ColumnType::INT64}}}},
      {"a;b\n1.000,5;2\n",
       "t.csv:2: a is \"1.000,5\", expected a number",
       {.separator = ";", .types = {{"a", ColumnType::DOUBLE}}, .decimal_comma = true}},
      {"a,b\n1,2\n", "t.csv: has no column \"c\" (columns); it has a, b", {.columns = {"c"}}},
      {"a,b\n1,2\n", "t.csv: has no column \"c\" (types); it has a, b", {.types = {{"c", ColumnType::TEXT}}}},
      {"a,b\n1,2\n", "the column \"a\" is named twice (columns)", {.columns = {"a", "a"}}},
      {"a,b\n1,2\n", "t.csv: has 2 columns, and 1 names are given (names)", {.names = {"a"}}},
      {"a\n1\n", "t.csv: has 2 lines; 5 are to be skipped (skip_lines)", {.skip_lines = 5}},
      {"a\n1\n", "not gzip data, or damaged", {}, "t.csv.gz"},
      {"a\n1\n", "read_csv: separator must be one character of one byte", {.separator = ", "}},
      {"a\n1\n", "read_csv: separator must be one character", {.separator = "\n"}},
      {"a\n1\n", "read_csv: quote must be one character", {.quote = "''"}},
      {"a\n1\n", "read_csv: comment must be one character", {.comment = "//"}},
      {"a\n1\n", "read_csv: separator, quote and comment must differ", {.separator = "\""}},
      {"a\n1\n", "read_csv: separator, quote and comment must differ", {.comment = "\""}},
      {"a\n1\n", "with decimal_comma, the separator must be another", {.decimal_comma = true}},
      {"a\n1\n", "read_csv: max_rows must be >= 1, got 0", {.max_rows = 0}},
      {"a\n1\n", "read_csv: skip_lines must be >= 0, got -1", {.skip_lines = -1}},
  };
  for (const Case& at : cases) {
    const TemporaryFolder folder;
    const std::string bytes = std::string_view(at.bytes).starts_with("\xFF\xFE") ? std::string(at.bytes, 6) : at.bytes;
    write(folder / at.name, bytes);
    const std::string error = error_of([&] { read_csv(folder / at.name, at.options); });
    CAPTURE(at.text);
    CAPTURE(error);
    CHECK(contains(error, at.text));
    CHECK(error.find('\n') == std::string::npos);
    CHECK(error.size() < 500);
    CHECK((error.starts_with((folder / at.name).string()) || error.starts_with("read_csv: ")));
  }
  const TemporaryFolder folder;
  write(folder / "image.csv", std::string("\x89PNG\0\0,x\n1,2\n", 14));
  CHECK_THROWS_WITH_AS(read_csv(folder / "image.csv"),
                       doctest::Contains("image.csv: is no text: its first line has a zero byte, at byte 4"),
                       DataError);
  CHECK_THROWS_WITH_AS(read_csv(folder / "none.csv"), doctest::Contains("none.csv: cannot be opened"), DataError);
  CHECK_THROWS_WITH_AS(read_csv(folder.path()), doctest::Contains("is a folder"), DataError);
}

TEST_CASE("Asking a column of texts for numbers tells which cell is none") {
  const TemporaryFolder folder;
  write(folder / "t.csv", "a,b\n1,2\n2,3\n3,12x\n4,5\n");
  const Table table = read_csv(folder / "t.csv");
  CHECK_THROWS_WITH_AS(
      table["b"],
      ("column \"b\" is of texts, expected numbers: " + (folder / "t.csv").string() + ": line 4 has \"12x\"").c_str(),
      DataError);
}

TEST_CASE("A header alone is a table without rows, and is what is written of one") {
  const TemporaryFolder folder;
  const CsvOptions options{.types = {{"b", ColumnType::TEXT}, {"c", ColumnType::INT64}}};
  for (const char* text : {"a,b,c\n", "a,b,c", "a,b,c\r\n\r\n"}) {
    const Table table = read_text(text, options);
    CHECK(table.names() == std::vector<std::string>{"a", "b", "c"});
    CHECK(table.rows() == 0);
    CHECK(table.type("a") == ColumnType::DOUBLE);
    CHECK(table.type("b") == ColumnType::TEXT);
    CHECK(table.type("c") == ColumnType::INT64);
    write_csv(table, folder / "t.csv");
    CHECK(text_of(folder / "t.csv") == "a,b,c\n");
  }
}

TEST_CASE("Integers above 2^53 that a missing cell makes doubles are told") {
  for (const auto& [text, told] :
       {std::pair("id,x\n9007199254740993,1\n,1\n", true), std::pair("id,x\n-9007199254740993,1\n,1\n", true),
        std::pair("id,x\n9007199254740992,1\n,1\n", false), std::pair("id,x\n9007199254740993,1\n1,1\n", false)}) {
    Warnings warnings;
    read_text(text);
    CHECK(warnings.say("t.csv: id has missing cells and integers such as") == told);
    CHECK(warnings.texts.size() == (told ? 1 : 0));
  }
}

TEST_CASE("A table that was written and read again is the same") {
  const TemporaryFolder folder;
  RandomStream random(3);
  for (const char* name : {"t.csv", "t.tsv"})
    for (int round = 0; round < 20; ++round) {
      const std::int64_t rows = 1 + static_cast<std::int64_t>(random.below(50));
      std::vector<std::optional<std::string>> words;
      const std::vector<std::string> kinds = {"a,b",        "\"q\"", "line\nbreak", "tab\tbed", " led", "é",  "plain",
                                              "cr\rlf\r\n", "",      "NA",          " null ",   "None", "  ", "true"};
      for (std::int64_t i = 0; i < rows; ++i)
        words.push_back(random.below(5) == 0 ? std::nullopt : std::optional(kinds[random.below(kinds.size())]));
      words[0] = "word";
      at::Tensor doubles =
          at::rand({rows}, at::kDouble).sub(0.5).mul(at::pow(10, at::randint(-30, 30, {rows}).to(at::kDouble)));
      doubles[0] = 0.1;
      if (rows > 1) doubles[1] = kNan;
      Table table{{"double", doubles},
                  {"int", at::randint(-1000000, 1000000, {rows}, at::kLong)},
                  {"a \"bool\", too", at::rand({rows}) < 0.5}};
      table.set("text", data::TextColumn(words));
      table.set("float", at::rand({rows}));
      write_csv(table, folder / name);
      const Table again =
          read_csv(folder / name, {.types = {{"float", ColumnType::FLOAT}, {"double", ColumnType::DOUBLE}}});
      REQUIRE(again.names() == table.names());
      for (const char* numbers : {"double", "int", "a \"bool\", too", "float"})
        CHECK(same(again[numbers], table[numbers]));
      CHECK(texts(again, "text") == texts(table, "text"));
      CHECK(again.missing("text").equal(table.missing("text")));
    }
}

TEST_CASE("A batch is written with a column for each number of a row") {
  const TemporaryFolder folder;
  write_csv(Batch{{"row", at::arange(2)}, {"p", at::tensor({0.25F, 0.75F, 1.0F, 0.0F}).view({2, 2})}},
            folder / "deep" / "t.csv");
  CHECK(text_of(folder / "deep" / "t.csv") == "row,p_0,p_1\n0,0.25,0.75\n1,1,0\n");
  write_csv(Table{{"x", at::tensor({kNan, 1.0})}}, folder / "one.csv");
  CHECK(read_csv(folder / "one.csv").rows() == 2);
  CHECK_THROWS_WITH_AS(write_csv(Batch{{"x", at::zeros({1, 2, 3})}}, folder / "t.csv"),
                       doctest::Contains("\"x\" has the shape [1, 2, 3]"), DataError);
}

}  // namespace composer::csv_test
