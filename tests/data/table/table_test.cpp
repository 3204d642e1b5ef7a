#include "composer/data/table/table.h"

#include <limits>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::table_test {

using data::ColumnType;
using data::Row;
using data::Table;

namespace {

Table houses() {
  return {
      {"area", {80.5, 61.0, 120.0}}, {"city", {"Oslo", "Rome", "Oslo"}}, {"rooms", at::tensor({3, 2, 5}, at::kLong)}};
}

}  // namespace

TEST_CASE("A table gives its columns as tensors, texts and codes") {
  const Table table = houses();
  CHECK(table.rows() == 3);
  CHECK(table.type("area") == ColumnType::DOUBLE);
  CHECK(table["rooms"].equal(at::tensor({3, 2, 5}, at::kLong)));
  CHECK(table.texts("city")[1] == "Rome");
  CHECK(table.codes("city").equal(at::tensor({0, 1, 0}, at::kLong)));
  CHECK(table.codes("rooms").equal(at::tensor({0, 1, 2}, at::kLong)));
  CHECK(table.matrix({"rooms", "area"}).equal(at::tensor({3.F, 80.5F, 2.F, 61.F, 5.F, 120.F}).view({3, 2})));
  CHECK(table.batch({"area"})["area"].equal(table["area"]));
  CHECK(table.head(-1) == "area  city  rooms\n");
  CHECK(table.head(1) == "area  city  rooms\n80.5  Oslo      3\n");
}

TEST_CASE("Columns and rows are chosen by name, index, mask and range") {
  const Table table = houses();
  CHECK(table.select({"city", "area"}).names() == std::vector<std::string>{"city", "area"});
  CHECK(table.drop({"city"}).names() == std::vector<std::string>{"area", "rooms"});
  const Table chosen = table.rows(at::tensor({2, 0, -2}, at::kLong));
  CHECK(chosen["rooms"].equal(at::tensor({5, 3, 2}, at::kLong)));
  CHECK(chosen.texts("city")[2] == "Rome");
  CHECK(table.rows(table["rooms"] > 2)["area"].equal(at::tensor({80.5, 120.0}, at::kDouble)));
  CHECK(table.rows(1, 3).rows() == 2);
  CHECK(table.rows(0, 0).rows() == 0);
}

TEST_CASE("Rows of columns are chosen by any tensor of indices, for numbers and texts alike") {
  const Table table = houses();
  const at::Tensor strided = at::tensor({0, 9, -1, 9, 1, 9}, at::kLong).slice(0, 0, 6, 2);
  CHECK(table.column("rooms").rows(strided).tensor().equal(at::tensor({3, 5, 2}, at::kLong)));
  const data::Column cities = table.column("city").rows(strided);
  REQUIRE(cities.size() == 3);
  CHECK(cities.texts()[0] == "Oslo");
  CHECK(cities.texts()[2] == "Rome");
  CHECK(table.texts("city").rows(table["rooms"] < 3)[0] == "Rome");
  for (const std::int64_t wrong : {3, -4, 1000000}) {
    const at::Tensor index = at::tensor({wrong}, at::kLong);
    for (const char* name : {"rooms", "city"})
      CHECK_THROWS_WITH_AS(table.column(name).rows(index), doctest::Contains("at place 0, and the column has 3 rows"),
                           DataError);
  }
  for (const at::Tensor& wrong : {at::zeros({1}, at::kInt), at::zeros({1, 1}, at::kLong), at::zeros({}, at::kLong)})
    CHECK_THROWS_WITH_AS(table.texts("city").rows(wrong), doctest::Contains("expected a tensor [M] of int64"),
                         DataError);
  CHECK_THROWS_WITH_AS(table.rows(at::Tensor()), doctest::Contains("undefined"), DataError);
}

TEST_CASE("The cells of a row may be of any type of numbers and texts") {
  const std::string_view text = "Oslo";
  const Table row = Row{{"a", std::size_t{3}}, {"b", 4U},   {"c", 5LL},  {"d", std::int16_t{-6}},
                        {"e", 0.5F},           {"f", text}, {"g", false}};
  for (const auto& [name, value] : {std::pair("a", 3), std::pair("b", 4), std::pair("c", 5), std::pair("d", -6)}) {
    CHECK(row.type(name) == ColumnType::INT64);
    CHECK(row[name].item<std::int64_t>() == value);
  }
  CHECK(row["e"].item<double>() == 0.5);
  CHECK(row.texts("f")[0] == "Oslo");
  CHECK(row.type("g") == ColumnType::BOOL);
  CHECK_THROWS_WITH_AS((Row{{"id", UINT64_MAX}}), "Row: the number of \"id\" is above those of int64", DataError);
}

TEST_CASE("A row is a table of one row, in which nullptr is missing") {
  const Table row = Row{{"area", 120.0}, {"city", "Oslo"}, {"rooms", 3}, {"balcony", true}, {"year", nullptr}};
  CHECK(row.rows() == 1);
  CHECK(row.type("area") == ColumnType::DOUBLE);
  CHECK(row.type("city") == ColumnType::TEXT);
  CHECK(row.type("rooms") == ColumnType::INT64);
  CHECK(row.type("balcony") == ColumnType::BOOL);
  CHECK(row.column("year").is_missing(0));
}

TEST_CASE("What a table does not have, and what does not fit into it, is named") {
  Table table = houses();
  CHECK_THROWS_WITH_AS(table["price"], "the table has no column \"price\"; it has area, city, rooms", DataError);
  CHECK_THROWS_WITH_AS(table["city"],
                       doctest::Contains("column \"city\" is of texts, expected numbers; texts() gives it"), DataError);
  CHECK_THROWS_WITH_AS(table.texts("area"), "column \"area\" is DOUBLE, expected texts", DataError);
  CHECK_THROWS_WITH_AS(table.set("x", {1.0}), "column \"x\" has 1 cells, and the table 3 rows", DataError);
  CHECK_THROWS_WITH_AS(table.rows(at::tensor({0, 3}, at::kLong)),
                       "Table::rows: index 3 at place 1, and the table has 3 rows", DataError);
  CHECK_THROWS_WITH_AS(table.rows(at::ones({1}, at::kBool)), doctest::Contains("a mask of 1 values"), DataError);
  CHECK_THROWS_WITH_AS(table.rows(at::rand({2})), doctest::Contains("expected a tensor [M] of int64"), DataError);
  CHECK_THROWS_WITH_AS(table.rows(1, 4), doctest::Contains("[1, 4) of a table of 3 rows"), DataError);
  CHECK_THROWS_WITH_AS(table.drop({"price"}), doctest::Contains("no column \"price\""), DataError);
  CHECK_THROWS_WITH_AS((Table{{"a", {1.0}}, {"a", {2.0}}}), "Table: two columns are called \"a\"", DataError);
  CHECK_THROWS_WITH_AS(Table(Row{{"a", 1}, {"a", 2}}), "Row: two cells are called \"a\"", DataError);
  CHECK_THROWS_WITH_AS((Table{{"a", at::zeros({2, 2})}}),
                       doctest::Contains("must have the shape [N] or [N, 1], got [2, 2]"), DataError);
  CHECK_THROWS_WITH_AS((Table{{"a", at::tensor({1, -1}, at::kLong).view(at::kUInt64)}}),
                       doctest::Contains("uint64 in row 1"), DataError);
  CHECK_THROWS_WITH_AS(data::TextColumn({"\xE9"}), doctest::Contains("not UTF-8"), DataError);
}

TEST_CASE("Tensors of other types become columns of the four that a table has") {
  const Table table{
      {"u8", at::tensor({1, 2}, at::kByte)}, {"half", at::ones({2}, at::kHalf)}, {"column", at::zeros({2, 1})}};
  CHECK(table.type("u8") == ColumnType::INT64);
  CHECK(table.type("half") == ColumnType::FLOAT);
  CHECK(table["column"].dim() == 1);
}

}  // namespace composer::table_test
