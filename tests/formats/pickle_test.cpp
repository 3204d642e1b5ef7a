#include <string>
#include <vector>

#include "composer/core/error.h"
#include "composer/formats/pickle_reader.h"
#include "composer/formats/unsupported.h"
#include "tests/formats/bytes.h"
#include "tests/support/doctest.h"

namespace composer::test::pickle_test {
namespace {

using namespace std::string_literals;

using namespace formats;
using Kind = PickleValue::Kind;

const std::string kStart = "\x80\x02"s;

std::string complaint(const std::string& pickle, PickleOptions options = {}) {
  try {
    read_pickle(pickle, "x.pt", options);
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

// The parts of a pickle.
std::string text(const std::string& letters) {
  std::string op = "X";
  for (int i = 0; i < 4; ++i) op += static_cast<char>(letters.size() >> 8 * i);
  return op + letters;
}
std::string integer(std::int64_t number) {
  std::string op = "\x8a\x08";
  for (int i = 0; i < 8; ++i) op += static_cast<char>(static_cast<std::uint64_t>(number) >> 8 * i);
  return op;
}
std::string tuple(const std::vector<std::int64_t>& numbers) {
  std::string ops = "(";
  for (const std::int64_t number : numbers) ops += integer(number);
  return ops + "t";
}
std::string storage(const std::string& kind, std::int64_t elements) {
  return "(" + text("storage") + "ctorch\n" + kind + "\n" + text("0") + text("cpu") + integer(elements) + "tQ";
}
std::string tensor(const std::string& storage, std::int64_t offset, const std::vector<std::int64_t>& shape,
                   const std::vector<std::int64_t>& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + integer(offset) + tuple(shape) + tuple(strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR";
}

// storage(key, elements), as in a tuple of its parts; left on the stack.
std::string storage_of(const std::string& key, std::int64_t elements) {
  return "("s + text("storage") + "ctorch\nBoolStorage\n" + text(key) + text("cpu") + integer(elements) + "tQ";
}

TEST_CASE("A pickle gives numbers, texts, lists, dicts and sets of every opcode") {
  const Pickle pickle =
      read_pickle(kStart + "](K\xFFM\xFF\xFFJ\xFE\xFF\xFF\xFF\x8a\x01\x80\x8a\0"s + integer(INT64_MIN) +
                      "G\xC0\x04\0\0\0\0\0\0N\x88\x89X\x02\0\0\0ab\x8c\x01"
                      "ce."s,
                  "x.pt");
  REQUIRE(pickle.root.kind == Kind::LIST);
  const auto& items = pickle.items[pickle.root.index];
  REQUIRE(items.size() == 12);
  const std::int64_t integers[] = {255, 65535, -2, -128, 0, INT64_MIN};
  for (std::size_t i = 0; i < 6; ++i) {
    CAPTURE(i);
    CHECK(items[i].kind == Kind::INTEGER);
    CHECK(items[i].integer == integers[i]);
  }
  CHECK(items[6].real == -2.5);
  CHECK(items[7].kind == Kind::NONE);
  CHECK(items[8].integer == 1);
  CHECK(items[9].integer == 0);
  CHECK(pickle.strings[items[10].index] == "ab");
  CHECK(pickle.strings[items[11].index] == "c");

  const Pickle dict = read_pickle(kStart + "}(" + text("k") + "](K\1K\2eq\0"s + text("m") + "h\0u."s, "x.pt");
  CHECK(dict.items[dict.root.index].size() == 4);
  CHECK(dict.items[dict.root.index][3].kind == Kind::LIST);
  CHECK(dict.items.size() == 2);  // the list is there once
}

TEST_CASE("A pickle with code is an error that names it, and nothing is called") {
  const struct {
    std::string why;
    std::string pickle;
    const char* says;
  } cases[] = {
      {"a function is called", kStart + "cos\nsystem\n" + text("id") + "\x85R.", "os.system: a class or function"},
      {"by another opcode", kStart + "(" + text("id") + "ios\nsystem\n.", "opcode 0x69"},
      {"by yet another", kStart + "(cos\nsystem\n" + text("id") + "o.", "os.system"},
      {"from the stack", kStart + text("builtins") + text("eval") + "\x93" + text("1") + "\x85R.", "builtins.eval"},
      {"an object is made", kStart + "cos\nPath\n)\x81.", "os.Path"},
      {"a name of the list with a longer one", kStart + "ctorch\nSize.__class__\n.", "torch.Size.__class__"},
      {"a name within torch", kStart + "ctorch\nload\n.", "torch.load"},
      {"getattr", kStart + "cbuiltins\ngetattr\n.", "builtins.getattr"},
      {"extensions", kStart + "\x82\1.", "opcode 0x82"},
      {"BUILD of a class", kStart + "ctorch\nSize\n}b.", "BUILD of something other"},
      {"REDUCE of a dtype", kStart + "ctorch\nfloat32\n)R.", "REDUCE of torch float32"},
      {"REDUCE of a text", kStart + text("eval") + ")R.", "REDUCE of something other"},
      {"a persistent id as text", kStart + "Pabc\n.", "opcode 0x50"},
      {"a persistent id that is no storage",
       kStart + "(" + text("module") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\1tQ.",
       "a reference to something other than a storage"},
      {"buffers beside the pickle", kStart + "\x97.", "opcode 0x97"},
      {"protocol 0", "(dp0\n.", "not a pickle of protocol 2 to 5"},
      {"protocol 6", "\x80\x06N.", "not a pickle of protocol 2 to 5"},
  };
  for (const auto& [why, pickle, says] : cases) {
    CAPTURE(why);
    const std::string said = complaint(pickle);
    CAPTURE(said);
    CHECK(said.find(says) != std::string::npos);
    CHECK(said.starts_with("x.pt: "));
  }
}

TEST_CASE("What is unknown is passed over if that is asked for") {
  const std::string pickle = kStart + "}(" + text("time") + "cdatetime\ndatetime\n(K\0K\3K\0tR"s + text("n") + "K\1u.";
  CHECK(complaint(pickle).find("datetime.datetime") != std::string::npos);
  const Pickle read = read_pickle(pickle, "x.pt", {.allow_unknown = true});
  const auto& items = read.items[read.root.index];
  CHECK(items[1].kind == Kind::UNKNOWN);
  CHECK(items[3].integer == 1);
}

TEST_CASE("What Composer's checkpoints hold beside weights is passed over without being asked for") {
  const std::string random =
      "cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\n(K\0tX\1\0\0\0b\x87R"
      "(K\1(M\x70\2tcnumpy\ndtype\nX\2\0\0\0u4\x89\x88\x87R(K\3tb\x89tb"s;
  const std::string dtype = "cnumpy\ndtype\nX\2\0\0\0f8\x89\x88\x87R"s;
  const std::string counter = "ccollections\nCounter\n}"s + text("a") + "K\2s\x85R",
                    seed = "\x8a\x10" + std::string(16, '\7');
  const std::string rest[] = {"cdatetime\ntimedelta\n(K\0K\3K\0tR"s,
                              random,
                              counter,
                              seed,
                              "cbuiltins\nbytearray\nC\1x\x85R",
                              "cnumpy._core.multiarray\nscalar\n" + dtype + "C\1x\x86R",
                              "cnumpy.core.multiarray\nscalar\n" + dtype + "C\1x\x86R",
                              "ctorch.torch_version\nTorchVersion\n" + text("2.15.0") + "\x85\x81"};
  for (const std::string& value : rest) {
    CAPTURE(value);
    const Pickle read = read_pickle(kStart + "}(" + text("x") + value + text("n") + "K\1u.", "x.pt");
    const auto& items = read.items[read.root.index];
    REQUIRE(items.size() == 4);
    CHECK(items[1].kind == Kind::UNKNOWN);
    CHECK(items[3].integer == 1);
  }
}

TEST_CASE("Tensors of an unknown dtype or class are refused by name, and skipped on request") {
  const std::string good = text("b") + "ctorch._utils\n_rebuild_tensor_v2\n(" + storage_of("1", 2) + integer(0) +
                           tuple({2}) + tuple({1}) + "\x89" + "ccollections\nOrderedDict\n)RtR";
  const std::string order = "ccollections\nOrderedDict\n)R";
  const std::string version3 = "ctorch._utils\n_rebuild_tensor_v3\n(" + storage("ByteStorage", 8) + integer(0) +
                               tuple({2}) + tuple({1}) + "\x89" + order;
  const struct {
    std::string tensor;
    const char* says;
  } cases[] = {
      {"ctorch._utils\n_rebuild_qtensor\n(" + storage("QInt8Storage", 2) + integer(0) + tuple({2}) + tuple({1}) +
           "ctorch\nper_tensor_affine\nG\0\0\0\0\0\0\0\0K\0\x87\x89"s + order + "tR",
       "torch._utils._rebuild_qtensor: a class"},
      {tensor(storage("QInt8Storage", 2), 0, {2}, {1}), "torch.QInt8Storage: a class"},
      {version3 + "ctorch\ncomplex32\ntR", "torch.complex32: a class"},
      {version3 + text("complex32") + "tR", "a tensor of an unknown dtype"},
      {"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nc__main__\nSub\n(" +
           storage("FloatStorage", 2) + integer(0) + tuple({2}) + tuple({1}) + "\x89" + order + "tNtR",
       "__main__.Sub: a class"},
      {"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nSize\n)NtR",
       "a tensor of a class of its own"},
  };
  for (const auto& [bad, says] : cases) {
    CAPTURE(says);
    const std::string pickle = kStart + "}(" + text("a") + bad + good + "u.";
    CHECK_THROWS_AS(read_pickle(pickle, "x.pt"), UnsupportedError);
    CHECK_MESSAGE(complaint(pickle).find(says) != std::string::npos, complaint(pickle));
    CHECK(complaint(pickle).find("allow_unknown skips it") != std::string::npos);
    const Pickle read = read_pickle(pickle, "x.pt", {.allow_unknown = true});
    CHECK(read.items[read.root.index][1].kind == Kind::UNKNOWN);
    CHECK(read.items[read.root.index][3].kind == Kind::TENSOR);
  }
}

TEST_CASE("An object of TorchScript has its attributes, however often they are given") {
  const std::string object = "c__torch__.a.b\nModule\n)\x81";
  const Pickle read = read_pickle(kStart + object + "}(" + text("n") + "K\1ub}(" + text("child") + object + "}b" +
                                      text("list") + "ctorch.jit._pickle\nbuild_intlist\n](K\5e\x85Rub.",
                                  "x.pt");
  REQUIRE(read.root.kind == Kind::OBJECT);
  const auto& items = read.items[read.root.index];
  REQUIRE(items.size() == 4);
  CHECK(items[1].kind == Kind::OBJECT);
  CHECK(read.items[items[3].index].front().integer == 5);
  CHECK(complaint(kStart + "c__torch__x\nModule\n)\x81.").find("__torch__x.Module: a class") != std::string::npos);
  // Attributes that a pickle copies again and again.
  std::string many = kStart + "](}(";
  for (int i = 0; i < 1'000; ++i) many += "NN";
  many += "uq\0"s;
  for (int i = 0; i < 1'000; ++i) many += object + "h\0b"s;
  CHECK(complaint(many + "e.").find("more values than the pickle has bytes") != std::string::npos);
}

TEST_CASE("A pickle that is cut or whose opcodes do not fit together is an error") {
  const std::string good = kStart + "}" + text("w") + tensor(storage("FloatStorage", 6), 0, {2, 3}, {3, 1}) + "s.";
  CHECK(complaint(good).empty());
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(complaint(good.substr(0, size)).empty());
  }
  for (const std::string& ops : {"."s,
                                 "NN."s,
                                 "(."s,
                                 "N(t."s,
                                 "t."s,
                                 "s."s,
                                 "a."s,
                                 "]s."s,
                                 "}a."s,
                                 "](\x88u."s,
                                 "}(\x88u."s,
                                 "h\0."s,
                                 "q\0."s,
                                 "(q\0."s,
                                 "]K\1(a."s,
                                 "\x87."s,
                                 "R."s,
                                 ")R."s,
                                 "b."s,
                                 "Q."s,
                                 "\x93."s,
                                 "N.N"s,
                                 "\x95\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"
                                 "N."s,
                                 "\x8d\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF."s,
                                 "X\xFF\xFF\xFF\xFF."s,
                                 "cos"s}) {
    CAPTURE(ops);
    CHECK_FALSE(complaint(kStart + ops).empty());
  }
}

TEST_CASE("A tensor that does not lie within its storage is an error") {
  constexpr std::int64_t kMost = INT64_MAX;
  const struct {
    std::string why;
    std::int64_t elements, offset;
    std::vector<std::int64_t> shape, strides;
    bool right = false;
  } cases[] = {
      {"whole", 6, 0, {2, 3}, {3, 1}, true},
      {"transposed", 6, 0, {3, 2}, {1, 3}, true},
      {"the last element", 6, 5, {}, {}, true},
      {"expanded", 1, 0, {1'000'000'000'000}, {0}, true},
      {"empty, at the end", 6, 6, {0}, {1}, true},
      {"empty, with strides", 6, 0, {0, 3}, {kMost, kMost}, true},
      {"one row, any stride", 6, 0, {1, 6}, {kMost, 1}, true},
      {"a negative stride", 6, 5, {6}, {-1}},
      {"a negative offset", 6, -1, {6}, {1}},
      {"a negative dimension", 6, 0, {-6}, {1}},
      {"a negative storage", -6, 0, {1}, {1}},
      {"one too many", 6, 0, {7}, {1}},
      {"an offset too many", 6, 1, {6}, {1}},
      {"just beyond", 6, 6, {}, {}},
      {"empty, beyond the end", 6, 7, {0}, {1}},
      {"a stride too long", 6, 0, {2}, {6}},
      {"a product that overflows", 6, 0, {3}, {kMost}},
      {"a sum that overflows", 6, 0, {2, 2, 2}, {kMost, kMost, 1}},
      {"an offset that overflows", 6, kMost, {2}, {kMost}},
      {"a shape that overflows", 1, 0, {kMost, kMost}, {0, 0}},
      {"a storage that overflows", kMost, 0, {1}, {1}},
      {"fewer strides than dimensions", 6, 0, {2, 3}, {1}},
      {"more strides than dimensions", 6, 0, {2}, {1, 1}},
      {"65 dimensions", 1, 0, std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 1)},
  };
  for (const auto& [why, elements, offset, shape, strides, right] : cases) {
    CAPTURE(why);
    CHECK(complaint(kStart + tensor(storage("FloatStorage", elements), offset, shape, strides) + ".").empty() == right);
  }
}

// A short text that stands for a huge thing.
TEST_CASE("A pickle that uses values again and again is an error, soon") {
  std::string lists = kStart + "(](K\1K\1eq\0"s;  // each list holds the one before ten times
  for (int i = 1; i < 100; ++i) {
    lists += "](";
    for (int k = 0; k < 10; ++k) lists += "h"s + static_cast<char>(i - 1);
    lists += "eq"s + static_cast<char>(i);
  }
  CHECK_THROWS_AS(open_pt(zip_bytes({{"a/data.pkl", lists + "t."}})), CheckpointError);
  // A list that holds itself.
  CHECK_THROWS_AS(open_pt(zip_bytes({{"a/data.pkl", kStart + "]q\0h\0a."s}})), UnsupportedError);
  std::string deep = kStart;
  for (int i = 0; i < 10'000; ++i) deep += ']';
  for (int i = 1; i < 10'000; ++i) deep += 'a';
  CHECK_THROWS_AS(open_pt(zip_bytes({{"a/data.pkl", deep + "."}})), CheckpointError);
  // The same pairs as a dict, again and again.
  std::string dicts = kStart + "(](";
  for (int i = 0; i < 1'000; ++i) dicts += "NN\x86";
  dicts += "e\x85q\0ccollections\nOrderedDict\nq\1"s;
  for (int i = 0; i < 1'000; ++i) dicts += "h\1h\0R"s;
  CHECK(complaint(dicts + "t.").find("more values than the pickle has bytes") != std::string::npos);
}

TEST_CASE("A storage that is described a thousand times is kept once, and descriptions that differ are refused") {
  const std::string key(255, 'k');
  std::string many = kStart + "]" + "(" + text("storage") + "ctorch\nBoolStorage\n" + text(key) + text("cpu") +
                     integer(1) + "tq\x01Qa";
  for (int i = 0; i < 1000; ++i) many += "h\x01Qa";
  CHECK(read_pickle(many + ".", "x.pt").storages.size() == 1);
  CHECK(complaint(kStart + "](" + storage_of("a", 1) + storage_of("a", 1) + "e.").empty());
  CHECK(complaint(kStart + "](" + storage_of("a", 1) + storage_of("a", 2) + "e.")
            .find("two different descriptions of the storage") != std::string::npos);
}

}  // namespace
}  // namespace composer::test::pickle_test
