#include "composer/core/state_dict.h"

#include <chrono>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/saved_by.h"

namespace composer::state_dict_test {
namespace {

using test::saved_by;

struct Inner {
  int count = 0;
  std::optional<double> best;
  void visit_state(StateVisitor& visit) {
    visit("count", count);
    visit("best", best);
  }
};

enum class Colour : std::uint8_t { RED, GREEN };

struct Everything {
  std::int64_t integer = 0;
  std::uint64_t wide = 0;
  double real = 0;
  bool flag = false;
  std::string text;
  at::Tensor tensor, none;
  Time time = Time(0, TimeUnit::EPOCH);
  Timestamp stamp;
  std::optional<Timestamp> absent;
  std::vector<Inner> list;
  std::vector<double> numbers;
  std::vector<std::int64_t> counts;
  std::map<std::string, std::int64_t> by_name;
  Colour colour = Colour::RED;

  void visit_state(StateVisitor& visit) {
    visit("integer", integer), visit("wide", wide), visit("real", real), visit("flag", flag), visit("text", text);
    visit("tensor", tensor), visit("none", none), visit("time", time), visit("stamp", stamp), visit("absent", absent);
    visit("list", list), visit("numbers", numbers), visit("counts", counts), visit("by_name", by_name);
    visit("colour", colour);
  }
};

Everything example() {
  Everything e;
  e.integer = -5;
  e.wide = ~std::uint64_t{0};
  e.real = 0.1;
  e.flag = true;
  e.text = "a/b";
  e.tensor = at::arange(3);
  e.time = Time(3, TimeUnit::BATCH);
  e.stamp.batch = 7;
  e.stamp.batch_wct = Seconds(0.3);
  e.list = {{.count = 1, .best = 2.5}, {.count = 2}};
  e.numbers = {0.1, 1e300};
  e.counts = {1, -2};
  e.by_name = {{"x", 1}, {"y", 2}};
  e.colour = Colour::GREEN;
  return e;
}

TEST_CASE("every kind of field comes back as it was") {
  const StateDict dict = saved_by(example());
  Everything e;
  e.absent = Timestamp();
  e.list.resize(9);
  StateVisitor visit = StateVisitor::loading(dict, "e");
  e.visit_state(visit);
  const Everything expected = example();
  CHECK(e.integer == -5);
  CHECK(e.wide == ~std::uint64_t{0});
  CHECK(e.real == 0.1);
  CHECK(e.flag);
  CHECK(e.text == "a/b");
  CHECK(e.tensor.equal(expected.tensor));
  CHECK_FALSE(e.tensor.is_same(expected.tensor));
  CHECK_FALSE(e.none.defined());
  CHECK(e.time == expected.time);
  CHECK(e.stamp == expected.stamp);
  CHECK_FALSE(e.absent);
  REQUIRE(e.list.size() == 2);
  CHECK(e.list[0].best == 2.5);
  CHECK_FALSE(e.list[1].best);
  CHECK(e.numbers == expected.numbers);
  CHECK(e.counts == expected.counts);
  CHECK(e.by_name == expected.by_name);
  CHECK(e.colour == Colour::GREEN);
}

TEST_CASE("A StateDict keeps the order in which names were set, whatever is erased and set again") {
  StateDict dict;
  for (const char* name : {"d", "b", "a", "c"}) dict[name] = std::string(name);
  CHECK(dict.erase("b"));
  CHECK_FALSE(dict.erase("b"));
  dict["a"] = std::string("changed");
  dict["b"] = std::string("again");
  StateDict copy = dict, moved = std::move(dict);
  copy["e"] = std::string("e");
  for (const StateDict* each : {&copy, &moved}) {
    std::string order;
    for (const auto& [name, value] : each->entries()) {
      order += name;
      REQUIRE(each->find(name));
      CHECK(std::get<std::string>(*each->find(name)) == std::get<std::string>(value));
    }
    CHECK(order == (each == &copy ? "dacbe" : "dacb"));
  }
  CHECK_FALSE(moved.find("e"));
  CHECK(std::get<std::string>(moved["a"]) == "changed");
}

// A search through all names would need minutes; the bound is for the busiest of machines.
TEST_CASE("A hundred thousand names are set, copied and found in seconds") {
  const auto start = std::chrono::steady_clock::now();
  StateDict dict;
  constexpr std::int64_t kNames = 100'000;
  for (std::int64_t i = 0; i < kNames; ++i) dict["layers." + std::to_string(i) + ".weight"] = i;
  const StateDict copy = dict;
  std::int64_t sum = 0;
  for (const auto& [name, value] : dict.entries()) sum += std::get<std::int64_t>(*copy.find(name));
  CHECK(sum == kNames * (kNames - 1) / 2);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("what is missing or of another type is an error that names the field") {
  const auto fails = [](StateDict dict, const std::string& name) {
    Everything e;
    StateVisitor visit = StateVisitor::loading(dict, "e");
    try {
      e.visit_state(visit);
    } catch (const CheckpointError& error) {
      CAPTURE(error.what());
      return std::string(error.what()).find("e/" + name) != std::string::npos;
    }
    return false;
  };
  for (const char* name : {"integer", "real", "flag", "text", "time", "stamp", "list", "by_name"}) {
    StateDict dict = saved_by(example());
    dict.erase(name);
    CHECK(fails(dict, name));
    dict[name] = at::zeros({1});
    CHECK(fails(dict, name));
  }
  StateDict shorter = saved_by(example());
  std::get<StateDict>(shorter["list"]).erase("1");
  CHECK(fails(shorter, "list/size"));
  StateDict mixed = saved_by(example());
  mixed["numbers"] = at::zeros({2}, at::kFloat);
  CHECK(fails(mixed, "numbers"));
}

TEST_CASE("Two fields of one name are an error that names the field, of whatever kind they are") {
  int number = 0;
  std::string text;
  at::Tensor tensor = at::ones({1});
  std::optional<double> real = 2.5;
  std::vector<Inner> list;
  std::vector<double> numbers;
  std::map<std::string, std::int64_t> by_name;
  Inner inner;
  const auto fails = [](auto& first, auto& second) {
    StateDict dict;
    StateVisitor visit = StateVisitor::saving(dict);
    StateVisitor scope = visit.scope("e");
    scope("x", first);
    CHECK_THROWS_WITH_AS(scope("x", second), doctest::Contains("e/x is the name of two fields"), CheckpointError);
  };
  fails(number, number), fails(text, number), fails(tensor, tensor), fails(real, real), fails(list, list);
  fails(numbers, numbers), fails(by_name, by_name), fails(inner, inner), fails(number, list), fails(list, number);
  std::optional<double> none;
  at::Tensor undefined;
  fails(none, none), fails(none, real), fails(real, none), fails(undefined, undefined), fails(undefined, tensor);
  fails(tensor, undefined), fails(none, number), fails(number, none);
}

TEST_CASE("A field that is empty when it is saved is no value of the dict, and can become one") {
  StateDict dict;
  StateVisitor visit = StateVisitor::saving(dict);
  std::optional<double> none;
  at::Tensor undefined;
  visit("a", none), visit("b", undefined);
  CHECK(dict.empty());
  CHECK(dict.find("a") == nullptr);
  CHECK_FALSE(dict.erase("b"));
  dict["c"] = std::int64_t{1}, dict["a"] = std::int64_t{2}, dict["b"] = std::int64_t{3};
  CHECK(dict.erase("c"));
  const StateDict copy = dict;
  REQUIRE(copy.find("a") != nullptr);
  CHECK(std::get<std::int64_t>(*copy.find("a")) == 2);
  CHECK(std::get<std::int64_t>(*copy.find("b")) == 3);
}

}  // namespace
}  // namespace composer::state_dict_test
