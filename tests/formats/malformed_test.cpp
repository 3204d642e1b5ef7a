// Headers of safetensors files that are wrong in one way each, and what is said of them.
#include <string>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/formats/unsupported.h"
#include "tests/formats/bytes.h"
#include "tests/support/doctest.h"

namespace composer::test::malformed_test {
namespace {

using namespace formats;

// What opening the file says; empty if it is accepted.
std::string complaint(const std::string& bytes) {
  try {
    open_safetensors(bytes).read_all();
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

struct Case {
  std::string why;
  std::string header;
  std::size_t data;  // bytes, all zero
  const char* says;
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{" + entry("a", dtype, shape, offsets) + "}";
}

TEST_CASE("A header that is exactly what the format says is accepted") {
  const Case cases[] = {
      {"nothing", "{}", 0, ""},
      {"spaces behind", "{}   ", 0, ""},
      {"a space before", " {}", 0, ""},
      {"metadata that is null", R"({ "__metadata__": null })", 0, ""},
      {"spaces between", R"({ "a" : { "dtype" : "U8" , "shape" : [ 2 , 1 ] , "data_offsets" : [ 0 , 2 ] } } )", 2, ""},
      {"another order of keys", R"({"a":{"data_offsets":[0,2],"shape":[2],"dtype":"U8"}})", 2, ""},
      {"scalar", one("F64", "[]", "[0,8]"), 8, ""},
      {"empty tensor", one("F64", "[3,0]", "[0,0]"), 0, ""},
      {"tensors in another order than their data",
       "{" + entry("a", "U8", "[1]", "[1,2]") + "," + entry("b", "U8", "[1]", "[0,1]") + "}", 2, ""},
      {"only metadata", R"({"__metadata__":{"a":"b"}})", 0, ""},
      {"metadata last", "{" + entry("a", "U8", "[1]", "[0,1]") + R"(,"__metadata__":{}})", 1, ""},
      {"escapes", "{" + entry("\\u00e4\\ud83d\\ude42\\\"\\/", "U8", "[0]", "[0,0]") + "}", 0, ""},
      {"64 dimensions",
       one(
           "U8",
           "[1" +
               [] {
                 std::string t;
                 for (int i = 0; i < 63; ++i) t += ",1";
                 return t;
               }() +
               "]",
           "[0,1]"),
       1, ""},
  };
  for (const auto& [why, header, data, says] : cases) {
    CAPTURE(why);
    CHECK(complaint(safetensors_bytes(header, std::string(data, '\0'))) == says);
  }
}

TEST_CASE("A header that is wrong is an error that says why and where") {
  const std::string deep(10'000, '['), deep_objects = [] {
    std::string text;
    for (int i = 0; i < 10'000; ++i) text += "{\"a\":";
    return text;
  }();
  const Case cases[] = {
      {"no JSON", "hello", 0, "expected {"},
      {"nothing at all", "", 0, "expected { at byte 8"},
      {"an array", "[]", 0, "expected {"},
      {"something behind", "{}{}", 0, "extra text after the end at byte 10"},
      {"a zero behind", std::string("{}\0", 3), 0, "extra text after the end"},
      {"a comma too many", "{" + entry("a", "U8", "[0]", "[0,0]") + ",}", 0, "expected \""},
      {"cut", R"({"a":{"dtype":"F)", 0, "ends within a string"},
      {"10,000 arrays", deep, 0, "expected {"},
      {"10,000 arrays as a shape", one("U8", deep, "[0,0]"), 0, "expected an integer"},
      {"10,000 objects", deep_objects, 0, "unknown key a"},
      {"an entry that is no object", R"({"a":1})", 0, "expected {"},
      {"an unknown key", R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", 0, "a: unknown key x"},
      {"a key twice", R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0,
       "dtype occurs twice, the second time at byte"},
      {"no dtype", R"({"a":{"shape":[0],"data_offsets":[0,0]}})", 0, "is missing"},
      {"no shape", R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0, "is missing"},
      {"no offsets", R"({"a":{"dtype":"U8","shape":[0]}})", 0, "is missing"},
      {"a name twice", "{" + entry("a", "U8", "[0]", "[0,0]") + "," + entry("a", "U8", "[0]", "[0,0]") + "}", 0,
       "two tensors are called a"},
      {"a name twice, written otherwise",
       "{" + entry("a", "U8", "[0]", "[0,0]") + "," + entry("\\u0061", "U8", "[0]", "[0,0]") + "}", 0,
       "two tensors are called a"},
      {"an unknown dtype", one("F31", "[0]", "[0,0]"), 0, "a: unknown dtype F31"},
      {"a dtype in small letters", one("f32", "[0]", "[0,0]"), 0, "unknown dtype f32"},
      {"a dimension below 0", one("U8", "[-1]", "[0,0]"), 0, "not negative"},
      {"a dimension that is no integer", one("U8", "[1.0]", "[0,1]"), 1, "expected ,"},
      {"a dimension with an exponent", one("U8", "[1e0]", "[0,1]"), 1, "expected ,"},
      {"a dimension that begins with 0", one("U8", "[01]", "[0,1]"), 1, "begins with 0"},
      {"a dimension that is not a number", one("U8", "[NaN]", "[0,1]"), 1, "expected an integer"},
      {"a dimension as text", one("U8", R"(["1"])", "[0,1]"), 1, "expected an integer"},
      {"a dimension of 2^63", one("U8", "[9223372036854775808]", "[0,1]"), 1, "beyond 2^63"},
      {"a dimension of 2^64 + 1", one("U8", "[18446744073709551617]", "[0,1]"), 1, "beyond 2^63"},
      {"shape times dtype overflows to 0", one("F32", "[4611686018427387904]", "[0,0]"), 0, "shape is too large"},
      {"a shape that overflows", one("U8", "[4294967296,4294967296]", "[0,0]"), 0, "shape is too large"},
      {"a shape that overflows beside a 0", one("U8", "[4294967296,4294967296,0]", "[0,0]"), 0, "shape is too large"},
      {"65 dimensions",
       one(
           "U8",
           "[1" +
               [] {
                 std::string t;
                 for (int i = 0; i < 64; ++i) t += ",1";
                 return t;
               }() +
               "]",
           "[0,1]"),
       1, "more than 64 dimensions"},
      {"one offset", one("U8", "[0]", "[0]"), 0, "needs two numbers"},
      {"three offsets", one("U8", "[0]", "[0,0,0]"), 0, "more than two numbers"},
      {"offsets that run backwards", one("U8", "[1]", "[1,0]"), 1, "are not the 1 bytes"},
      {"offsets that do not fit the shape", one("F32", "[2]", "[0,4]"), 4, "are not the 8 bytes"},
      {"offsets near 2^63", one("U8", "[1]", "[9223372036854775806,9223372036854775807]"), 1,
       "overlap, or there is a hole"},
      {"a hole before", one("U8", "[1]", "[1,2]"), 2, "begins at byte 1"},
      {"a hole between", "{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("b", "U8", "[1]", "[2,3]") + "}", 3,
       "b begins at byte 2"},
      {"an overlap", "{" + entry("a", "U8", "[2]", "[0,2]") + "," + entry("b", "U8", "[2]", "[1,3]") + "}", 3,
       "b begins at byte 1"},
      {"the same bytes twice", "{" + entry("a", "U8", "[2]", "[0,2]") + "," + entry("b", "U8", "[2]", "[0,2]") + "}", 2,
       "b begins at byte 0"},
      {"too little data", one("U8", "[3]", "[0,3]"), 2, "it is cut off"},
      {"too much data", one("U8", "[3]", "[0,3]"), 4, "the tensors take 3 bytes, but the file has 4"},
      {"metadata of numbers", R"({"__metadata__":{"a":1}})", 0, "expected \""},
      {"metadata that is nil", R"({"__metadata__":nil})", 0, "expected {"},
      {"metadata that is almost null", R"({"__metadata__":nullify})", 0, "expected ,"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ occurs twice"},
      {"a metadata key twice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "the metadata has a twice"},
      {"bad UTF-8", "{\"\xC3\":{}}", 0, "not UTF-8"},
      {"UTF-8 longer than need be", "{\"\xC0\x80\":{}}", 0, "not UTF-8"},
      {"a surrogate in UTF-8", "{\"\xED\xA0\x80\":{}}", 0, "not UTF-8"},
      {"beyond the last character", "{\"\xF4\x90\x80\x80\":{}}", 0, "not UTF-8"},
      {"half a surrogate pair", R"({"\ud83d":{}})", 0, "surrogate"},
      {"the other half", R"({"\ude42":{}})", 0, "surrogate"},
      {"an unknown escape", R"({"\x":{}})", 0, "unknown escape"},
      {"a control character", "{\"\n\":{}}", 0, "control character"},
      {"part of our checksums", R"({"__metadata__":{"composer.format":"1"}})", 0, "a part of the checksums is missing"},
      {"a version to come",
       R"({"__metadata__":{"composer.format":"2","composer.header":"","composer.checksums":"{}"}})", 0,
       "composer.format is 2; this version reads 1"},
      {"a wrong checksum",
       R"({"__metadata__":{"composer.format":"1","composer.header":"xxh3:0123456789abcdef","composer.checksums":"{}"}})",
       0, "the header is damaged"},
  };
  for (const auto& [why, header, data, says] : cases) {
    CAPTURE(why);
    const std::string said = complaint(safetensors_bytes(header, std::string(data, '\0')));
    CAPTURE(said);
    CHECK(said.find(says) != std::string::npos);
    CHECK(said.starts_with("bytes in memory: "));
  }
  CHECK(complaint(safetensors_bytes(one("BOOL", "[1]", "[0,1]"), "\2")).find("neither 0 nor 1") != std::string::npos);
}

TEST_CASE("Tensors of a dtype that libtorch does not have are listed, refused by name, and skipped on request") {
  const std::string header = "{" + entry("a", "F4", "[2,8]", "[0,8]") + "," + entry("b", "F6_E2M3", "[4]", "[8,11]") +
                             "," + entry("c", "F6_E3M2", "[4]", "[11,14]") + "," + entry("d", "U8", "[2]", "[14,16]") +
                             "}";
  const SafetensorsFile file = open_safetensors(safetensors_bytes(header, std::string(16, '\1')));
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.tensors()[0].shape == std::vector<std::int64_t>{2, 8});
  CHECK(file.read("d").equal(at::ones({2}, at::kByte)));
  CHECK_THROWS_WITH_AS(file.read("a"), doctest::Contains("a is F4"), UnsupportedError);
  CHECK_THROWS_AS(file.read_all(), UnsupportedError);
  const NamedTensors others = file.read_all(/*allow_unknown=*/true);
  REQUIRE(others.size() == 1);
  CHECK(others[0].first == "d");
  CHECK(complaint(safetensors_bytes(one("F4", "[3]", "[0,1]"), "x")).find("are not the 1 bytes") != std::string::npos);
  CHECK(complaint(safetensors_bytes(one("F4", "[4]", "[0,4]"), "xxxx")).find("are not the 2 bytes") !=
        std::string::npos);
}

TEST_CASE("A dtype and a version that are unknown are not supported; where the checksum tells, they are damage") {
  CHECK_THROWS_AS(open_safetensors(safetensors_bytes(one("F31", "[9]", "[0,1]"), "x")), UnsupportedError);
  std::string ours = safetensors_bytes({{"a", at::ones({2})}});
  ours.replace(ours.find("F32"), 3, "F33");
  CHECK(complaint(ours).find("the header is damaged") != std::string::npos);
}

TEST_CASE("A length of the header that the file has not is an error, and no memory is asked for") {
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{100'000'001}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    CAPTURE(length);
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    CHECK(complaint(bytes + "{}").find("the header's length") != std::string::npos);
  }
  for (std::size_t size = 0; size < 8; ++size)
    CHECK(complaint(std::string(size, '\0')).find("bytes, too few for a safetensors file") != std::string::npos);
}

TEST_CASE("Checksums of our own that do not belong to the tensors are an error") {
  TensorEntry entry{
      .name = "a", .dtype = "U8", .shape = {1}, .begin = 0, .end = 1, .checksum = "xxh3:0123456789abcdef"};
  const std::string header = make_safetensors_header({entry}, {});
  CHECK(complaint(header + "x").find("a is damaged: the bytes") != std::string::npos);
  entry.checksum = "xxh3:0123456789ABCDEF";
  CHECK(complaint(make_safetensors_header({entry}, {}) + "x").find("a: not a checksum") != std::string::npos);
  entry.checksum = "crc:1";
  CHECK(complaint(make_safetensors_header({entry}, {}) + "x").find("a: not a checksum") != std::string::npos);
}

}  // namespace
}  // namespace composer::test::malformed_test
