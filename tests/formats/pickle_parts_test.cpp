// What the machine of pickles is made of, each part alone.
#include <functional>
#include <string>
#include <utility>

#include "composer/core/error.h"
#include "composer/formats/pickle_bytes.h"
#include "composer/formats/pickle_rebuilder.h"
#include "composer/formats/pickle_values.h"
#include "composer/formats/unsupported.h"
#include "tests/support/doctest.h"

namespace composer::test::pickle_parts_test {
namespace {

using namespace std::string_literals;

using namespace formats;
using Kind = PickleValue::Kind;

const std::string kName = "x.pt";

std::string said_by(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

TEST_CASE("Numbers and texts of a pickle are read in turn, and an error names the byte of the opcode") {
  const std::string pickle =
      "\x80\x02"
      "A\x01\x02"
      "line\n"
      "B\x3f\xf8\0\0\0\0\0\0"
      "C\x01\xff"
      "D\x09"
      "123456789"
      "E"s;
  PickleBytes bytes(pickle, kName);
  bytes.begin();
  CHECK(bytes.opcode() == 'A');
  CHECK(bytes.number(2) == 0x201);
  CHECK(bytes.line() == "line");
  CHECK(bytes.opcode() == 'B');
  CHECK(bytes.real() == 1.5);
  CHECK(bytes.opcode() == 'C');
  CHECK(*bytes.long_integer() == -1);
  CHECK(bytes.opcode() == 'D');
  CHECK_FALSE(bytes.long_integer());
  CHECK(bytes.left() == 1);
  CHECK(bytes.opcode() == 'E');
  CHECK(said_by([&] { bytes.take(1); }) == "x.pt: the pickle is cut off at byte 33 of its pickle");
  CHECK(said_by([&] { bytes.line(); }) == "x.pt: the pickle is cut off at byte 33 of its pickle");
  CHECK_THROWS_AS(bytes.refuse("this"), UnsupportedError);
}

TEST_CASE("A value of a pickle that is asked for what it is not is an error") {
  const std::string pickle(100, 'x');
  const PickleBytes bytes(pickle, kName);
  PickleValues values(bytes);
  const PickleValue text = values.make_string("word"), number = integer_value(3), minus = integer_value(-1);
  const PickleValue pair = values.make(Kind::TUPLE, {number, number}), list = values.make(Kind::LIST, {});
  CHECK(values.string(text) == "word");
  CHECK(values.natural(number) == 3);
  CHECK(values.naturals(pair) == std::vector<std::int64_t>{3, 3});
  CHECK(values.tuple(pair, 2, 2).size() == 2);
  values.items_of(list, Kind::LIST).push_back(text);
  CHECK(values.items(list).size() == 1);
  values.items_of({.kind = Kind::UNKNOWN}, Kind::LIST).push_back(text);
  CHECK(values.items_of({.kind = Kind::UNKNOWN}, Kind::DICT).empty());
  CHECK_FALSE(said_by([&] { values.string(number); }).empty());
  CHECK_FALSE(said_by([&] { values.natural(minus); }).empty());
  CHECK_FALSE(said_by([&] { values.natural(text); }).empty());
  CHECK_FALSE(said_by([&] { values.tuple(list, 0, 9); }).empty());
  CHECK_FALSE(said_by([&] { values.tuple(pair, 3, 9); }).empty());
  CHECK_FALSE(said_by([&] { values.items_of(list, Kind::DICT); }).empty());
}

TEST_CASE("A pickle makes no more values than its length allows") {
  const std::string pickle(40, 'x');
  const PickleBytes bytes(pickle, kName);
  PickleValues values(bytes);
  values.spend(30);
  CHECK(said_by([&] { values.spend(11); }).find("more values than the pickle has bytes") != std::string::npos);
  values.spend(10);
  int made = 0;
  CHECK(said_by([&] {
          for (;; ++made) values.make(Kind::LIST, {});
        }).find("more lists than") != std::string::npos);
  CHECK(made == 111);  // 100, one for every four bytes, and the one that goes beyond
}

TEST_CASE("Names on the list become values, others are passed over where that is allowed, and none is called") {
  const std::string pickle(1000, 'x');
  const PickleBytes bytes(pickle, kName);
  PickleValues values(bytes);
  PickleRebuilder strict(bytes, values, {}), lenient(bytes, values, {.allow_unknown = true});
  CHECK_THROWS_AS(strict.global("os", "system"), UnsupportedError);
  const PickleValue unknown = lenient.global("os", "system");
  CHECK(unknown.kind == Kind::UNKNOWN);
  CHECK(values.pickle().skipped == "os.system");
  const PickleValue none = values.make(Kind::TUPLE, {});
  CHECK(lenient.reduce(unknown, none).kind == Kind::UNKNOWN);

  const PickleValue pair = values.make(Kind::TUPLE, {values.make_string("k"), integer_value(1)});
  const PickleValue pairs = values.make(Kind::TUPLE, {values.make(Kind::LIST, {pair, pair})});
  const PickleValue dict = strict.reduce(strict.global("collections", "OrderedDict"), pairs);
  CHECK(dict.kind == Kind::DICT);
  CHECK(values.items(dict).size() == 4);
  strict.build(dict, dict);
  CHECK(said_by([&] { strict.build(pair, dict); }).find("BUILD of something other") != std::string::npos);

  const auto storage = [&](const char* kind, std::int64_t elements) {
    return strict.storage(
        values.make(Kind::TUPLE, {values.make_string("storage"), strict.global("torch", kind), values.make_string("0"),
                                  values.make_string("cpu"), integer_value(elements)}));
  };
  const PickleValue first = storage("FloatStorage", 6);
  CHECK(storage("FloatStorage", 6).index == first.index);
  CHECK(values.pickle().storages.size() == 1);
  CHECK(said_by([&] { storage("LongStorage", 6); }).find("two different descriptions") != std::string::npos);
}

}  // namespace
}  // namespace composer::test::pickle_parts_test
