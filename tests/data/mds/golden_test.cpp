// Data sets that mosaicml-streaming has written (record_golden.py): they are read as they were, and written byte for
// byte.
#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/mds/mds_writer.h"
#include "composer/data/mds/streaming_dataset.h"
#include "tests/data/mds/support.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::golden_mds_test {

using data::MdsRow;
using data::MdsSample;
using data::MdsWriter;
using data::StreamingDataset;
using test::content_of;
using test::golden_mds;

namespace {

at::Tensor rgb(std::int64_t i) { return at::arange(18).add(i).to(at::kByte).view({2, 3, 3}).permute({2, 0, 1}); }

const std::map<std::string, std::string> kKinds = {{"a_int", "int"},
                                                   {"b_uint8", "uint8"},
                                                   {"b_uint16", "uint16"},
                                                   {"b_uint32", "uint32"},
                                                   {"b_uint64", "uint64"},
                                                   {"c_int8", "int8"},
                                                   {"c_int16", "int16"},
                                                   {"c_int32", "int32"},
                                                   {"c_int64", "int64"},
                                                   {"d_float16", "float16"},
                                                   {"d_float32", "float32"},
                                                   {"d_float64", "float64"},
                                                   {"e_str", "str"},
                                                   {"e_bytes", "bytes"},
                                                   {"e_json", "json"},
                                                   {"f_str_int", "str_int"},
                                                   {"f_str_float", "str_float"},
                                                   {"f_str_decimal", "str_decimal"},
                                                   {"g_any", "ndarray"},
                                                   {"g_int32", "ndarray:int32"},
                                                   {"g_uint16", "ndarray:uint16:2,3"},
                                                   {"g_float", "ndarray:float32:4"},
                                                   {"h_pil", "pil"},
                                                   {"h_gray", "pil"},
                                                   {"h_png", "png"},
                                                   {"i_list", "list[png]"},
                                                   {"i_array", "jpeg_array"}};
const std::map<std::string, std::string> kMany = {{"id", "int"}, {"text", "str"}, {"tokens", "ndarray:int32"}};

std::string text_i(std::int64_t i) { return "gr\u00f6\u00dfe " + std::to_string(i) + " \u4e16"; }
std::string json_i(std::int64_t i) { return "{\"i\": " + std::to_string(i) + ", \"list\": [1, 2.5, null]}"; }
std::string bytes_i(std::int64_t i) { return std::string("\x00\xff", 2) + static_cast<char>(i); }

MdsRow kinds_row(std::int64_t i, const MdsSample& as) {
  return {{"a_int", -i},
          {"b_uint8", 250 + i},
          {"b_uint16", 65530 + i},
          {"b_uint32", 4294967290 + i},
          {"b_uint64", 9007199254740993 + i},
          {"c_int8", -120 - i},
          {"c_int16", -32760 - i},
          {"c_int32", -2147483640 - i},
          {"c_int64", -9007199254740993 - i},
          {"d_float16", 0.5 + static_cast<double>(i)},
          {"d_float32", 0.1 * static_cast<double>(i)},
          {"d_float64", 0.1 * static_cast<double>(i)},
          {"e_str", text_i(i)},
          {"e_bytes", bytes_i(i)},
          {"e_json", json_i(i)},
          {"f_str_int", 1000000000000000 + i},
          {"f_str_float", 0.1 + static_cast<double>(i) * 1e17},
          {"f_str_decimal", std::to_string(i) + ".250"},
          {"g_any", at::arange(300 * (i + 1)).to(at::kShort).view({300, i + 1})},
          {"g_int32", at::arange(i + 1).sub(2).to(at::kInt)},
          {"g_uint16", at::arange(6).add(65530 - i).to(at::kInt).to(at::kUInt16).view({2, 3})},
          {"g_float", at::arange(4).to(at::kFloat).div(3).add(i)},
          {"h_pil", rgb(i)},
          {"h_gray", rgb(i).slice(0, 0, 1)},
          {"h_png", as.bytes("h_png")},
          {"i_list", as.bytes("i_list")},
          {"i_array", as.bytes("i_array")}};
}

MdsRow many_row(std::int64_t i) {
  std::string words;
  for (int word = 0; word < i % 7; ++word) words += "word ";
  return {{"id", i}, {"text", words}, {"tokens", at::arange(i % 5 + 1).mul(i).to(at::kInt)}};
}

}  // namespace

TEST_CASE("Every encoding that mosaicml-streaming has written is read with its value") {
  const StreamingDataset kinds({.local = golden_mds("kinds"), .validate_hash = "sha1"});
  REQUIRE(kinds.size() == 4);
  for (std::int64_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    const MdsSample s = kinds.sample(i);
    CHECK(s.names().size() == kKinds.size());
    CHECK(s.integer("a_int") == -i);
    CHECK(s.integer("b_uint8") == 250 + i);
    CHECK(s.integer("b_uint64") == 9007199254740993 + i);
    CHECK(s.integer("c_int8") == -120 - i);
    CHECK(s.integer("c_int64") == -9007199254740993 - i);
    CHECK(s.number("d_float16") == 0.5 + static_cast<double>(i));
    CHECK(s.number("d_float32") == static_cast<float>(0.1 * static_cast<double>(i)));
    CHECK(s.number("d_float64") == 0.1 * static_cast<double>(i));
    CHECK(s.text("e_str") == text_i(i));
    CHECK(s.bytes("e_bytes") == bytes_i(i));
    CHECK(s.text("e_json") == json_i(i));
    CHECK(s.integer("f_str_int") == 1000000000000000 + i);
    CHECK(s.number("f_str_float") == 0.1 + static_cast<double>(i) * 1e17);
    CHECK(s.number("f_str_decimal") == static_cast<double>(i) + 0.25);
    CHECK(s.tensor("a_int").equal(at::scalar_tensor(-i, at::kLong)));
    CHECK(s.tensor("b_uint16").equal(at::scalar_tensor(65530 + i, at::kInt)));
    CHECK(s.tensor("b_uint32").equal(at::scalar_tensor(4294967290 + i, at::kLong)));
    CHECK(s.tensor("d_float16").equal(at::scalar_tensor(0.5 + static_cast<double>(i), at::kHalf)));
    CHECK(s.tensor("g_any").equal(at::arange(300 * (i + 1)).to(at::kShort).view({300, i + 1})));
    CHECK(s.tensor("g_int32").equal(at::arange(i + 1).sub(2).to(at::kInt)));
    CHECK(s.tensor("g_uint16").equal(at::arange(6).add(65530 - i).to(at::kInt).view({2, 3})));
    CHECK(s.tensor("g_float").equal(at::arange(4).to(at::kFloat).div(3).add(i)));
    CHECK(s.tensor("h_pil").equal(rgb(i)));
    CHECK(s.tensor("h_png").equal(rgb(i)));
    CHECK(s.tensor("h_gray").equal(rgb(i).slice(0, 0, 1)));
    CHECK(s.tensor("e_str").sizes() == at::IntArrayRef{static_cast<std::int64_t>(text_i(i).size())});
    REQUIRE(s.list("i_list").size() == static_cast<std::size_t>(i));
    if (i > 0) CHECK(s.list("i_list")[0] == s.bytes("h_png"));
    REQUIRE(s.list("i_array").size() == 2);
    CHECK(s.list("i_array")[0] == "one");
    CHECK(s.list("i_array")[1].size() == 5 * static_cast<std::size_t>(i + 1));
    CHECK(s.bytes("h_png").substr(1, 3) == "PNG");
  }
}

TEST_CASE("A data set is the same uncompressed and compressed by zstd and gzip, whatever hash is verified") {
  const StreamingDataset plain({.local = golden_mds("many"), .validate_hash = "xxh64"});
  REQUIRE(plain.size() == 101);
  for (const char* name : {"zstd", "gz"}) {
    if (!test::has(name)) continue;
    const test::Folder folder;
    std::filesystem::copy(golden_mds(name), folder / name);
    const StreamingDataset zipped({.local = folder / name, .validate_hash = "sha1"});
    REQUIRE(zipped.size() == plain.size());
    for (std::int64_t i = 0; i < plain.size(); ++i)
      for (const char* column : {"id", "text", "tokens"}) {
        const MdsSample one = plain.sample(i), other = zipped.sample(i);
        CHECK(one.bytes(column) == other.bytes(column));
      }
    CHECK(std::filesystem::exists(folder / name / "shard.00003.mds"));
    CHECK(std::filesystem::exists(folder / name / ("shard.00003.mds." + std::string(name))));  // without a remote
  }
}

TEST_CASE("MdsWriter writes the bytes that mosaicml-streaming writes") {
  const test::Folder folder;
  {
    MdsWriter writer(folder / "many", {.columns = kMany, .hashes = {"xxh64", "sha1"}, .size_limit = 1000});
    for (std::int64_t i = 0; i < 101; ++i) writer.write(many_row(i));
    writer.finish();
    const StreamingDataset theirs({.local = golden_mds("kinds")});
    MdsWriter kinds(folder / "kinds", {.columns = kKinds,
                                       .hashes = {"blake2s", "md5", "sha1", "sha256", "sha3_256", "xxh128", "xxh32",
                                                  "xxh3_128", "xxh3_64", "xxh64"}});
    for (std::int64_t i = 0; i < 4; ++i) kinds.write(kinds_row(i, theirs.sample(i)));
    kinds.finish();
  }
  for (const char* name : {"many", "kinds"}) {
    int files = 0;
    for (const auto& file : std::filesystem::directory_iterator(golden_mds(name))) {
      CAPTURE(file.path().string());
      CHECK(content_of(file.path()) == content_of(folder / name / file.path().filename().string()));
      ++files;
    }
    CHECK(files > 1);
  }
}

TEST_CASE("Values are read only as what they are, and an error names shard, sample and column") {
  const StreamingDataset kinds({.local = golden_mds("kinds")});
  const MdsSample s = kinds.sample(2);
  const auto fails = [](auto read, const char* text) {
    CHECK_THROWS_WITH_AS(read(), doctest::Contains(text), DataError);
  };
  fails([&] { s.integer("e_str"); }, "shard.00000.mds: sample 2: column \"e_str\" (str) is not an integer");
  fails([&] { s.integer("d_float32"); }, "is not an integer");
  fails([&] { s.number("g_any"); }, "is not a number");
  fails([&] { s.text("e_bytes"); }, "is not a text");
  fails([&] { s.list("h_png"); }, "is not a list");
  fails([&] { s.tensor("i_list"); }, "a transform must read with list()");
  fails([&] { s.tensor("nothing"); }, "has no column \"nothing\"; there are: a_int, b_uint16");
  fails([&] { kinds.get(4); }, "there is no sample 4;");
  fails([&] { kinds.get(-1); }, "there is no sample -1;");
  CHECK(s.encoding("g_uint16") == "ndarray:uint16:2,3");
  CHECK(s.contains("h_pil"));
  CHECK_FALSE(s.contains("h"));
}

TEST_CASE("columns names the tensors of a sample, decode_image makes those of images") {
  const StreamingDataset some(
      {.local = golden_mds("kinds"), .columns = {"a_int", "h_png"}, .decode_image = [](std::string_view bytes) {
         return at::full({3, 1, 1}, static_cast<int>(bytes.size()));
       }});
  const data::Sample sample = some.get(1);
  CHECK(sample.size() == 2);
  CHECK(sample["a_int"].item<std::int64_t>() == -1);
  CHECK(sample["h_png"].sizes() == at::IntArrayRef({3, 1, 1}));
  CHECK_THROWS_WITH_AS(StreamingDataset({.local = golden_mds("kinds"), .columns = {"h_jpg"}}),
                       doctest::Contains("has no column \"h_jpg\", which columns names"), ConfigError);
}

}  // namespace composer::golden_mds_test
