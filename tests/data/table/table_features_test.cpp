#include "composer/data/table/table_features.h"

#include <limits>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "tests/support/doctest.h"

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
