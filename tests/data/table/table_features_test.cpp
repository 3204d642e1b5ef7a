#include "composer/data/table/table_features.h"

#include <functional>
#include <limits>
#include <map>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/data/table/csv.h"
#include "tests/support/doctest.h"
#include "tests/support/idx_files.h"
#include "tests/support/saved_by.h"
#include "tests/support/warnings.h"

namespace composer::table_features_test {

using data::Encoding;
using data::Imputation;
using data::Row;
using data::Scaling;
using data::Table;
using data::TableFeatures;
using data::TableFeaturesOptions;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Table houses() {
  return {{"area", {80.0, kNan, 120.0, 40.0}},
          {"city", {"Oslo", "Rome", "Oslo", "Bonn"}},
          {"rooms", at::tensor({3, 2, 5, 2}, at::kLong)},
          {"balcony", at::tensor({1, 0, 1, 1}).to(at::kBool)},
          {"price", {100.0, 50.0, 150.0, 60.0}}};
}

TableFeatures fitted(TableFeaturesOptions options, const Table& table = houses()) {
  TableFeatures features(std::move(options));
  features.fit(table);
  return features;
}

bool close(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a, b, 1e-5, 1e-6);
}

}  // namespace

TEST_CASE("Numbers are scaled, categories are one-hot, and the target is apart") {
  const TableFeatures features = fitted({.target = {"price"}});
  CHECK(features.feature_names() ==
        std::vector<std::string>{"area", "rooms", "balcony", "city=Bonn", "city=Oslo", "city=Rome"});
  const Batch batch = features.apply(houses());
  CHECK(batch.size() == 2);
  CHECK(batch["target"].equal(at::tensor({100.F, 50.F, 150.F, 60.F}).view({4, 1})));
  const at::Tensor input = batch["input"];
  CHECK((input.scalar_type() == at::kFloat));
  const at::Tensor rooms = houses()["rooms"].to(at::kFloat);
  CHECK(close(input.select(1, 1), (rooms - rooms.mean()) / rooms.std(false)));
  CHECK(
      close(input.select(1, 0), at::tensor({0.F, 0.F, 1.2247449F, -1.2247449F})));  // of 80, 120 and 40, and their mean
  CHECK(input.select(1, 2).equal(at::tensor({1.F, 0.F, 1.F, 1.F})));
  CHECK(input.slice(1, 3).equal(at::tensor({0.F, 1.F, 0.F, 0.F, 0.F, 1.F, 0.F, 1.F, 0.F, 1.F, 0.F, 0.F}).view({4, 3})));
  CHECK(data::in_memory(batch, {.batch_size = 2})->num_batches() == 2);
}

TEST_CASE("Each way of scaling and of filling in what is missing has its formula") {
  const auto area = [](TableFeaturesOptions options) {
    options.columns = {"area"};
    return fitted(options).apply(houses())["input"].select(1, 0);
  };
  CHECK(close(area({.numeric = Scaling::NONE}), at::tensor({80.F, 80.F, 120.F, 40.F})));
  CHECK(close(area({.numeric = Scaling::MIN_MAX}), at::tensor({.5F, .5F, 1.F, 0.F})));
  CHECK(close(area({.numeric = Scaling::NONE, .missing = Imputation::CONSTANT, .constant = -1}),
              at::tensor({80.F, -1.F, 120.F, 40.F})));
  const Table even{{"area", {1.0, 2.0, 10.0, 20.0, kNan}}};
  CHECK(fitted({.numeric = Scaling::NONE, .missing = Imputation::MEDIAN}, even).apply(even)["input"][4].item<float>() ==
        6);
  const TableFeatures marked = fitted({.columns = {"area", "rooms"}, .missing_indicator = true});
  CHECK(marked.feature_names() == std::vector<std::string>{"area", "rooms", "area is missing"});
  CHECK(marked.apply(houses())["input"].select(1, 2).equal(at::tensor({0.F, 1.F, 0.F, 0.F})));
  const Table constant{{"x", {0.1, 0.1, 0.1}}};
  CHECK(close(fitted({}, constant).apply(constant)["input"], at::zeros({3, 1})));
}

TEST_CASE(
    "Numbers that are equal, or differ by rounding alone, are shifted to 0 and not divided, however many there are") {
  for (const double number : {5.0, 0.1, -1e9 / 3, 1e-300, 0.0})
    for (const std::int64_t rows : {1, 100, 1000, 100003})
      for (const Scaling scaling : {Scaling::STANDARDIZE, Scaling::MIN_MAX}) {
        CAPTURE(number);
        CAPTURE(rows);
        const Table constant{{"x", at::full({rows}, number, at::kDouble)}};
        const TableFeatures features = fitted({.numeric = scaling}, constant);
        CHECK(features.apply(constant)["input"].eq(0).all().item<bool>());
        CHECK(features.apply(Row{{"x", number + 1}})["input"].item<float>() == doctest::Approx(1));
      }
  at::Tensor nearly = at::full({1000}, 0.3, at::kDouble);
  nearly.slice(0, 0, 500).fill_(0.1 + 0.2);
  CHECK(fitted({}, Table{{"x", nearly}}).apply(Row{{"x", 1.3}})["input"].item<float>() == doctest::Approx(1));
  // What differs by more is scaled, as times do.
  const at::Tensor times = at::arange(1000).to(at::kDouble).add(1.7e9);
  const at::Tensor input = fitted({}, Table{{"x", times}}).apply(Table{{"x", times}})["input"].to(at::kDouble);
  CHECK(input.mean().abs().item<double>() < 1e-6);
  CHECK(input.std(false).item<double>() == doctest::Approx(1));
}

TEST_CASE("A category is the same whatever type its column has in a file, and missing cells change it in another one") {
  const at::Tensor numbers = at::tensor({1, 0, 1}), more = at::tensor({0.0, kNan, 1.0}, at::kDouble);
  for (const at::ScalarType type : {at::kBool, at::kLong, at::kFloat, at::kDouble}) {
    const TableFeatures features = fitted({.categorical = {"x"}}, Table{{"x", numbers.to(type)}});
    CHECK(features.feature_names() == std::vector<std::string>{"x=0", "x=1"});
    CHECK(features.apply(Table{{"x", more}})["input"].equal(at::tensor({1.F, 0.F, 0.F, 0.F, 0.F, 1.F}).view({3, 2})));
    CHECK(features.apply(Row{{"x", true}})["input"].equal(at::tensor({0.F, 1.F}).view({1, 2})));
  }
  const TableFeatures tenths = fitted({.categorical = {"x"}}, Table{{"x", {0.1, 0.7, 1e-4}}});
  CHECK(tenths.feature_names() == std::vector<std::string>{"x=0.0001", "x=0.1", "x=0.7"});
  CHECK(tenths.apply(Table{{"x", at::tensor({0.1F, 0.7F, 1e-4F})}})["input"].sum(1).eq(1).all().item<bool>());
}

TEST_CASE("Categories of integers are told apart above 2^53, and are in the order of their numbers") {
  const std::int64_t large = std::int64_t{1} << 53;
  const Table ids{
      {"x", at::tensor({large + 1, large, std::int64_t{-3}, std::int64_t{10}, std::int64_t{9}}, at::kLong)}};
  const TableFeatures features = fitted({.target = {"x"}, .columns = {"y"}, .categorical = {"x"}}, [&] {
    Table table = ids;
    table.set("y", at::arange(5));
    return table;
  }());
  CHECK(features.classes() ==
        std::vector<std::string>{"-3", "9", "10", std::to_string(large), std::to_string(large + 1)});
  Table again = ids;
  again.set("y", at::arange(5));
  CHECK(features.apply(again)["target"].equal(at::tensor({4, 3, 0, 2, 1})));
  const Table halves{{"x", {10.5, 2.0, -1.5, 1e300, 11.0}}};
  CHECK(fitted({.categorical = {"x"}}, halves).feature_names() ==
        std::vector<std::string>{"x=-1.5", "x=2", "x=10.5", "x=11", "x=1e+300"});
  const Table texts{{"x", {"10", "9"}}};
  CHECK(fitted({}, texts).feature_names() == std::vector<std::string>{"x=10", "x=9"});
}

TEST_CASE("A file is read with the types of another by types(), also if its cells look otherwise") {
  const test::TemporaryFolder folder;
  test::write(folder / "train.csv", "zip,rooms,balcony,grade,price\n00123,3,true,1,5\nA1,2,false,2,6\n");
  test::write(folder / "valid.csv", "zip,rooms,balcony,grade\n00123,,,\n00124,2.5,true,2\n");
  test::write(folder / "bad.csv", "zip,rooms,balcony,grade\n00123,x,true,1\n");
  const TableFeatures features =
      fitted({.target = {"price"}, .categorical = {"grade"}}, data::read_csv(folder / "train.csv"));
  CHECK((features.types() == std::map<std::string, data::ColumnType>{{"rooms", data::ColumnType::DOUBLE},
                                                                     {"zip", data::ColumnType::TEXT}}));
  const Table valid = data::read_csv(folder / "valid.csv", {.types = features.types()});
  const at::Tensor input = features.apply(valid)["input"];
  CHECK(features.feature_names() ==
        std::vector<std::string>{"rooms", "balcony", "zip=00123", "zip=A1", "grade=1", "grade=2"});
  CHECK(input.slice(1, 1).equal(at::tensor({0.5F, 1.F, 0.F, 0.F, 0.F, 1.F, 0.F, 0.F, 0.F, 1.F}).view({2, 5})));
  CHECK_THROWS_WITH_AS(features.apply(data::read_csv(folder / "valid.csv")),
                       doctest::Contains("\"zip\" is of numbers, and was of texts in fit()"), DataError);
  CHECK_THROWS_WITH_AS(data::read_csv(folder / "bad.csv", {.types = features.types()}),
                       doctest::Contains("bad.csv:2: rooms is \"x\", expected a number"), DataError);
}

TEST_CASE("A column of numbers with another cell is not made categories without a warning, which names the cell") {
  const test::TemporaryFolder folder;
  test::write(folder / "auto.csv", "power,name\n130,a\n165,b\n?,c\n150,12\n");
  const Table cars = data::read_csv(folder / "auto.csv");
  {
    test::Warnings warnings;
    fitted({}, cars);
    REQUIRE(warnings.texts.size() == 1);
    CHECK(
        warnings.say("the column \"power\" is of texts, and becomes 4 categories, but 3 of its 4 cells are numbers: "));
    CHECK(warnings.say("auto.csv: line 4 has \"?\"; if that stands for a missing cell"));
  }
  test::Warnings warnings;
  fitted({.categorical = {"power"}}, cars);
  fitted({}, data::read_csv(folder / "auto.csv", {.types = {{"power", data::ColumnType::TEXT}}}));
  fitted({}, data::read_csv(folder / "auto.csv", {.missing = {"?"}}));
  CHECK(warnings.texts.empty());
}

TEST_CASE("Categories are indices on request, and 0 stands for what was not seen or is missing") {
  const TableFeatures features = fitted({.target = {"price"}, .categorical = {"rooms"}, .categories = Encoding::INDEX});
  CHECK(features.cardinalities() == std::vector<std::int64_t>{4, 4});
  CHECK(features.apply(houses())["category"].equal(at::tensor({2, 2, 3, 1, 2, 3, 1, 1}).view({4, 2})));
  const Batch unseen = features.apply(Row{{"area", 1.0}, {"city", "Paris"}, {"rooms", 5.0}, {"balcony", true}});
  CHECK(unseen["category"].equal(at::tensor({0, 3}).view({1, 2})));
  CHECK_FALSE(unseen.contains("target"));
  const Batch missing =
      features.apply(Row{{"area", nullptr}, {"city", nullptr}, {"rooms", nullptr}, {"balcony", false}});
  CHECK(missing["category"].equal(at::zeros({1, 2}, at::kLong)));
  const at::Tensor one_hot = fitted({.columns = {"city"}}).apply(Row{{"city", "Paris"}})["input"];
  CHECK(one_hot.equal(at::zeros({1, 3})));
}

TEST_CASE("A target of texts, or of numbers that are categories, becomes classes") {
  const TableFeatures city = fitted({.target = {"city"}, .ignore = {"price"}});
  CHECK(city.classes() == std::vector<std::string>{"Bonn", "Oslo", "Rome"});
  CHECK(city.apply(houses())["target"].equal(at::tensor({1, 2, 1, 0})));
  const TableFeatures rooms = fitted({.target = {"rooms"}, .categorical = {"rooms"}});
  CHECK(rooms.classes() == std::vector<std::string>{"2", "3", "5"});
  CHECK(rooms.apply(houses())["target"].equal(at::tensor({1, 0, 2, 0})));
}

TEST_CASE("A target that becomes classes and is to be scaled is an error that names the column and the cell") {
  CHECK_THROWS_WITH_AS(fitted({.target = {"city"}, .scale_target = true}),
                       "TableFeatures: the target \"city\" is of texts, which become classes, and scale_target is for "
                       "numbers; leave out scale_target if it is a class",
                       DataError);
  const test::TemporaryFolder folder;
  test::write(folder / "houses.csv", "area,price\n80,100\n60,sold\n40,60\n");
  const Table read = data::read_csv(folder / "houses.csv");
  const test::Warnings warnings;
  CHECK_THROWS_WITH_AS(
      fitted({.target = {"price"}, .scale_target = true}, read),
      doctest::Contains("the target \"price\" is of texts, which become classes, and scale_target is for "
                        "numbers; leave out scale_target if it is a class, or make its cells numbers: "),
      DataError);
  CHECK_THROWS_WITH(fitted({.target = {"price"}, .scale_target = true}, read),
                    doctest::Contains("houses.csv: line 3 has \"sold\""));
  CHECK(warnings.texts.empty());
  CHECK_THROWS_WITH_AS(TableFeatures({.target = {"rooms"}, .categorical = {"rooms"}, .scale_target = true}),
                       "TableFeatures: the target \"rooms\" is in categorical, so it becomes classes, and "
                       "scale_target is for numbers; leave out one of the two",
                       ConfigError);
}

TEST_CASE("inverse_target() undoes the scaling of targets, for one and for several") {
  const TableFeatures one = fitted({.target = {"price"}, .scale_target = true});
  const at::Tensor target = one.apply(houses())["target"];
  CHECK(close(target.mean(), at::zeros({})));
  CHECK(close(one.inverse_target(target).squeeze(1), houses()["price"].to(at::kFloat)));
  CHECK(close(one.inverse_target(target.squeeze(1)), houses()["price"].to(at::kFloat)));
  const TableFeatures two = fitted({.target = {"price", "rooms"}, .scale_target = true});
  CHECK(close(two.inverse_target(two.apply(houses())["target"]), houses().matrix({"price", "rooms"})));
  CHECK_THROWS_WITH_AS(two.inverse_target(at::zeros({4})), doctest::Contains("takes tensors [N, 2], got [4]"),
                       DataError);
  CHECK_THROWS_WITH_AS(fitted({.target = {"city"}}).inverse_target(target), doctest::Contains("city is of categories"),
                       DataError);
}

TEST_CASE("A row alone, and a batch of tensors, give what the same row of the table gives") {
  const TableFeatures features = fitted({.target = {"price"}});
  const at::Tensor all = features.apply(houses())["input"];
  const Row row{{"price", 1}, {"balcony", true}, {"area", 120}, {"rooms", 5}, {"city", "Oslo"}};
  CHECK(features.apply(row)["input"].equal(all.slice(0, 2, 3)));
  const TableFeatures numbers = fitted({.columns = {"area", "rooms"}});
  CHECK(numbers.apply(houses().batch({"area", "rooms"}))["input"].equal(numbers.apply(houses())["input"]));
}

TEST_CASE("Features that were saved and loaded give the same bits") {
  for (const TableFeaturesOptions& options :
       {TableFeaturesOptions{.target = {"price"}, .missing_indicator = true, .scale_target = true},
        TableFeaturesOptions{.target = {"city"},
        .categorical = {"rooms"},
        .numeric = Scaling::MIN_MAX,
        .categories = Encoding::INDEX,
        .missing = Imputation::MEDIAN},
        TableFeaturesOptions{
            .columns = {"area", "city"}, .numeric = Scaling::NONE, .missing = Imputation::CONSTANT, .constant = 0.3}}) {
    TableFeatures before = fitted(options), after;
    StateDict state;
    StateVisitor save = StateVisitor::saving(state);
    before.visit_state(save);
    StateVisitor load = StateVisitor::loading(state, "features");
    after.visit_state(load);
    const Batch expected = before.apply(houses()), got = after.apply(houses());
    REQUIRE(got.size() == expected.size());
    for (const auto& [name, tensor] : expected) CHECK(got[name].equal(tensor));
    CHECK(after.feature_names() == before.feature_names());
    CHECK(after.classes() == before.classes());
    CHECK(after.name() == "table");
    if (expected.contains("target") && before.classes().empty())
      CHECK(after.inverse_target(expected["target"]).equal(before.inverse_target(expected["target"])));
    after.fit(houses());  // the options are those of before, too
    CHECK(after.apply(houses()).front().equal(expected.front()));
  }
}

TEST_CASE("A file of features that fit() cannot have saved is refused, and changes nothing") {
  const std::pair<const char*, std::function<void(StateDict&, StateDict&)>> cases[] = {
      {"has a scale that is not > 0", [](StateDict&, StateDict& area) { area["scale"] = 0.0; }},
      {"has a scale that is not > 0", [](StateDict&, StateDict& area) { area["scale"] = kNan; }},
      {"another number that is not finite", [](StateDict&, StateDict& area) { area["shift"] = HUGE_VAL; }},
      {"has a type that this version", [](StateDict&, StateDict& area) { area["type"] = std::int64_t{9}; }},
      {"is of texts, and of no categories", [](StateDict&, StateDict& area) { area["type"] = std::int64_t{4}; }},
      {"have two columns \"city\"", [](StateDict&, StateDict& area) { area["name"] = std::string("city"); }},
      {"are not those that the options name", [](StateDict& all, StateDict&) { all["fitted"] = false; }},
      {"an option of the table's features", [](StateDict& all, StateDict&) { all["encoding"] = std::int64_t{7}; }},
      {"max_categories must be >= 1", [](StateDict& all, StateDict&) { all["max_categories"] = std::int64_t{0}; }},
      {"is both in columns and in ignore",
       [](StateDict& all, StateDict&) {
         StateDict names;
         names["size"] = std::int64_t{1};
         names["0"] = std::string("city");
         all["columns"] = names;
         all["ignore"] = names;
       }},
      {"has a category twice", [](StateDict& all, StateDict&) {
         auto& features = std::get<StateDict>(all["features"]);
         auto& city = std::get<StateDict>(features["1"]);
         std::get<StateDict>(city["categories"])["0"] = std::string("Rome");
       }}};
  for (const auto& [text, damage] : cases) {
    TableFeatures saved = fitted({.target = {"price"}}), loaded = fitted({.columns = {"rooms"}});
    StateDict state = test::saved_by(saved);
    damage(state, std::get<StateDict>(std::get<StateDict>(state["features"])["0"]));
    StateVisitor visit = StateVisitor::loading(state, "features");
    CHECK_THROWS_WITH_AS(loaded.visit_state(visit), doctest::Contains(text), CheckpointError);
    CHECK(loaded.feature_names() == std::vector<std::string>{"rooms"});
    CHECK(loaded.apply(Row{{"rooms", 3}}).contains("input"));
  }
}

TEST_CASE("What does not fit is an error that names the column, the row and both kinds") {
  const TableFeatures features = fitted({.target = {"price"}});
  const auto refuse = [](const TableFeatures& by, const Table& table, const char* text) {
    CHECK_THROWS_WITH_AS(by.apply(table), doctest::Contains(text), DataError);
  };
  refuse(features, houses().drop({"city"}),
         "the table has no column \"city\", which was of texts in fit(); it has area, rooms, balcony, price");
  Table other = houses();
  other.set("city", {1.0, 2.0, 3.0, 4.0});
  refuse(features, other, "the column \"city\" is of numbers, and was of texts in fit()");
  other = houses();
  other.set("rooms", {"a", "b", "c", "d"});
  refuse(features, other, "the column \"rooms\" is of texts, and was of numbers in fit()");
  other = houses();
  other.set("price", {1.0, kNan, 2.0, 3.0});
  refuse(features, other, "the target \"price\" is missing in row 1");
  other.set("price", {1.0, 2.0, HUGE_VAL, 3.0});
  refuse(features, other, "\"price\" is inf in row 2; numbers must be finite");
  other = houses();
  other.set("area", {1.0, 2.0, -HUGE_VAL, 3.0});
  refuse(features, other, "\"area\" is -inf in row 2; numbers must be finite");
  other.set("area", {1.0, 1e300, kNan, 3.0});
  refuse(features, other, "\"area\" is 1e+300 in row 1; when it is scaled, it must be within the range of float32");
  other = houses();
  refuse(fitted({.target = {"price", "rooms"}}), other.drop({"rooms"}),
         "the table has the target \"price\", and not the target \"rooms\"; it has area, city, balcony, price");
  CHECK_FALSE(fitted({.target = {"price", "rooms"}}).apply(other.drop({"rooms", "price"})).contains("target"));
  other.set("price", {1.0, kNan, 2.0, 3.0});
  CHECK_THROWS_WITH_AS(fitted({.target = {"price"}}, other),
                       doctest::Contains("the target \"price\" is missing in row 1; leave such rows out"), DataError);
  other = houses();
  other.set("city", {"Oslo", "Nice", "Oslo", "Oslo"});
  refuse(fitted({.target = {"city"}}), other, "the target \"city\" is \"Nice\", which fit() has not seen, in row 1");
  CHECK_THROWS_WITH_AS(fitted({.missing = Imputation::ERROR}),
                       "TableFeatures: the column \"area\" is missing in row 1 (missing = ERROR)", DataError);
  CHECK_THROWS_WITH_AS(TableFeatures().apply(houses()), "TableFeatures: apply() before fit()", DataError);
  CHECK_THROWS_WITH_AS(fitted({.target = {"cost"}}),
                       doctest::Contains("has no column \"cost\" (target); it has area, city"), DataError);
  CHECK_THROWS_WITH_AS(fitted({.max_categories = 2}),
                       doctest::Contains("\"city\" has more than 2 different texts, such as \"Bonn\""), DataError);
  CHECK_THROWS_WITH_AS(fitted({.target = {"city", "price"}}), doctest::Contains("there can be one such target alone"),
                       DataError);
  CHECK_THROWS_WITH_AS(fitted({}, Table{{"x", {kNan, kNan}}}),
                       doctest::Contains("all cells of the column \"x\" are missing"), DataError);
  CHECK_THROWS_WITH_AS(fitted({}, Table{{"x", {1.0, HUGE_VAL}}}), doctest::Contains("\"x\" is inf in row 1"),
                       DataError);
  CHECK_THROWS_WITH_AS(fitted({.ignore = {"x"}}, Table{{"x", {1.0}}}), doctest::Contains("no column is left"),
                       DataError);
  CHECK_THROWS_WITH_AS(fitted({}, Table()), doctest::Contains("the table has no rows"), DataError);
  CHECK_THROWS_WITH_AS(TableFeatures({.target = {"a"}, .ignore = {"a"}}),
                       doctest::Contains("is a target, and cannot be in columns or ignore"), ConfigError);
  CHECK_THROWS_WITH_AS(TableFeatures({.columns = {"a"}, .ignore = {"a"}}),
                       doctest::Contains("both in columns and in ignore"), ConfigError);
  CHECK_THROWS_WITH_AS(TableFeatures({.columns = {"a", "a"}}), doctest::Contains("named twice"), ConfigError);
  CHECK_THROWS_WITH_AS(TableFeatures({.target = {"a", "a"}}), doctest::Contains("named twice"), ConfigError);
  CHECK_THROWS_WITH_AS(TableFeatures({.constant = kNan}), doctest::Contains("constant must be finite"), ConfigError);
  CHECK_THROWS_WITH_AS(TableFeatures({.max_categories = 0}), doctest::Contains("max_categories must be >= 1"),
                       ConfigError);
}

}  // namespace composer::table_features_test
