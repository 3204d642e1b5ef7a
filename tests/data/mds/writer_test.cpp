#include <functional>
#include <limits>
#include <utility>
#include <variant>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/map_style.h"
#include "composer/data/mds/mds_writer.h"
#include "composer/data/mds/streaming_dataset.h"
#include "tests/data/mds/support.h"
#include "tests/support/doctest.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/folder.h"

namespace composer::mds_writer_test {

using data::MdsRow;
using data::MdsWriter;
using data::MdsWriterOptions;
using data::StreamingDataset;
using test::Folder;

template <class Sample>
concept GivesViews = requires(Sample&& sample) {
  std::forward<Sample>(sample).text("a");
  std::forward<Sample>(sample).bytes("a");
  std::forward<Sample>(sample).list("a");
};
// corpus.sample(17).text("text") would be a view of what is gone.
static_assert(GivesViews<const data::MdsSample&> && GivesViews<data::MdsSample&> && !GivesViews<data::MdsSample>);

TEST_CASE("A number that int64 does not hold is refused when it becomes a value, and is no negative one") {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK(std::get<std::int64_t>(data::MdsValue(kMost).any()) == std::numeric_limits<std::int64_t>::max());
  CHECK(std::get<std::int64_t>(data::MdsValue(true).any()) == 1);
  CHECK_THROWS_WITH_AS(data::MdsValue(kMost + 1), "MdsValue: 9223372036854775808 is beyond 2^63 - 1", DataError);
}

TEST_CASE("A data set is read as it was written, whatever its compression and the size of its shards") {
  for (const char* compression : {"", "zstd", "zstd:19", "gz", "gz:0"})
    for (const std::int64_t limit : {1, 200, 5000, 0}) {
      if (!test::has(compression)) continue;
      CAPTURE(compression);
      CAPTURE(limit);
      const Folder folder;
      MdsWriter writer(folder / "data", {.columns = {{"i", "int"}, {"t", "str"}, {"a", "ndarray"}},
                                         .compression = compression,
                                         .hashes = {"xxh3_64"},
                                         .size_limit = limit});
      for (int i = 0; i < 50; ++i)
        writer.write(
            {{"i", i}, {"t", std::string(static_cast<std::size_t>(i), 'x')}, {"a", at::full({1, i + 1}, 0.5 * i)}});
      CHECK(writer.size() == 50);
      writer.finish();
      const StreamingDataset data({.local = folder / "data", .validate_hash = "xxh3_64"});
      REQUIRE(data.size() == 50);
      for (std::int64_t i = 49; i >= 0; --i) {
        const auto sample = data.sample(i);
        CHECK(sample.integer("i") == i);
        CHECK(sample.text("t").size() == static_cast<std::size_t>(i));
        CHECK(sample.tensor("a").equal(at::full({1, i + 1}, 0.5 * static_cast<double>(i))));
      }
      std::int64_t files = 0;
      for (const auto& file : std::filesystem::directory_iterator(folder / "data"))
        files += file.path().extension() == ".mds" ? 1 : 0;
      CHECK((limit == 1 ? files == 50 : limit == 0 ? files == 1 : files > 1));
    }
}

TEST_CASE("A writer that ends without finish() leaves no data set, and the next one writes over its shards") {
  const Folder folder;
  {
    MdsWriter writer(folder / "data", {.columns = {{"i", "int"}}, .size_limit = 200});
    for (int i = 0; i < 100; ++i) writer.write({{"i", i}});
  }
  CHECK(std::filesystem::exists(folder / "data/shard.00000.mds"));
  CHECK_THROWS_WITH_AS(StreamingDataset({.local = folder / "data"}), doctest::Contains("index.json: is missing"),
                       DataError);
  test::write_numbered(folder / "data", 20);
  CHECK(StreamingDataset({.local = folder / "data"}).size() == 20);
  CHECK_THROWS_WITH_AS(MdsWriter(folder / "data", {.columns = {{"i", "int"}}}),
                       doctest::Contains("has an index.json; remove that data set"), ConfigError);
}

TEST_CASE("A disk that is full while a shard is written is an error, and leaves nothing that could be read") {
  const Folder folder;
  MdsWriter writer(folder / "data", {.columns = {{"t", "str"}}, .size_limit = 10000});
  {
    const test::FileSizeLimit full(4096);
    const auto write = [&] {
      for (int i = 0; i < 100; ++i) writer.write({{"t", std::string(1000, 'x')}});
    };
    CHECK_THROWS_WITH_AS(write(), doctest::Contains("shard.00000.mds"), Error);
  }
  for (const auto& file : std::filesystem::directory_iterator(folder / "data")) CHECK(file.path().string() == "");
}

TEST_CASE("A data set without samples has an index, and a loader of it is refused") {
  const Folder folder;
  test::write_numbered(folder / "data", 0);
  const StreamingDataset data({.local = folder / "data"});
  CHECK(data.size() == 0);
  CHECK_THROWS_WITH_AS(data::streaming(data, {.batch_size = 2}), doctest::Contains("the data has no samples"),
                       DataError);
}

TEST_CASE("A row that does not fit its columns is refused as a whole, and the writer goes on") {
  const Folder folder;
  MdsWriter writer(folder / "data", {.columns = {{"n", "uint8"},
                                                 {"f", "float16"},
                                                 {"s", "str"},
                                                 {"j", "json"},
                                                 {"a", "ndarray:int32:2"},
                                                 {"d", "ndarray"},
                                                 {"p", "pil"},
                                                 {"i", "str_int"},
                                                 {"m", "str_decimal"},
                                                 {"b", "bytes"}}});
  const auto row = [](const char* name, const data::MdsValue& value) {
    MdsRow good = {{"n", 1},
                   {"f", 0.5},
                   {"s", "s"},
                   {"j", "[]"},
                   {"a", at::zeros({2}, at::kInt)},
                   {"d", at::zeros({1})},
                   {"p", at::zeros({3, 2, 2}, at::kByte)},
                   {"i", 5},
                   {"m", "1.5"},
                   {"b", "x"}};
    for (auto& [key, old] : good)
      if (key == name) old = value;
    return good;
  };
  const std::vector<std::pair<MdsRow, const char*>> wrong = {
      {row("n", 256), "column \"n\" (uint8) cannot hold 256"},
      {row("n", -1), "cannot hold -1"},
      {row("n", 0.5), "takes a whole number"},
      {row("n", "1"), "takes a number, and got a text"},
      {row("n", at::zeros({2}, at::kByte)), "takes a number"},
      {row("f", "x"), "takes a number"},
      {row("s", 5), "takes a text"},
      {row("s", "\xff"), "takes UTF-8"},
      {row("j", "{"), "takes JSON, and got {"},
      {row("a", at::zeros({3}, at::kInt)), "takes a tensor [2], and got [3]"},
      {row("a", at::zeros({2}, at::kLong)), "takes int32, and got a tensor of Long"},
      {row("a", "xxxxxxxx"), "takes a tensor"},
      {row("a", at::Tensor()), "takes a dense tensor on the CPU"},
      {row("d", at::zeros({0})), "that has elements"},
      {row("d", at::scalar_tensor(1)), "1 to 63 dimensions"},
      {row("d", at::zeros({2}, at::kComplexFloat)), "takes numbers"},
      {row("p", at::zeros({2, 2, 2}, at::kByte)), "takes a uint8 tensor [1, 3 or 4, H, W]"},
      {row("i", 0.5), "takes a whole number"},
      {row("m", "one"), "\"one\" is not a number"},
      {row("b", at::zeros({2})), "takes bytes, and got a tensor of Float"},
      {{{"n", 1}}, "has no column \"a\""},
  };
  for (const auto& [bad, text] : wrong) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(writer.write(bad), doctest::Contains(text), DataError);
  }
  MdsRow more = row("n", 1);
  more.push_back({"z", 1});
  CHECK_THROWS_WITH_AS(writer.write(more), doctest::Contains("\"z\" is no column"), DataError);
  more.back() = {"n", 1};
  CHECK_THROWS_WITH_AS(writer.write(more), doctest::Contains("has a column twice"), DataError);
  writer.write(row("n", at::scalar_tensor(7, at::kLong)));
  writer.finish();
  CHECK_THROWS_WITH_AS(writer.write(row("n", 1)), doctest::Contains("after finish()"), ConfigError);
  const StreamingDataset data({.local = folder / "data"});
  REQUIRE(data.size() == 1);
  CHECK(data.sample(0).integer("n") == 7);
}

TEST_CASE("Options of MdsWriter that cannot be meant are refused with what is allowed") {
  const Folder folder;
  const std::vector<std::pair<MdsWriterOptions, const char*>> wrong = {
      {{}, "columns must not be empty"},
      {{.columns = {{"x", "int128"}}},
       "column \"x\" has the encoding \"int128\", which is not written; these are: bytes, str"},
      {{.columns = {{"x", "pkl"}}}, "which is not written"},
      {{.columns = {{"x", "ndarray:int32:0"}}}, "which is not written"},
      {{.columns = {{"x", "ndarray:int32:65536,65536"}}}, "which is not written"},
      {{.columns = {{"x", "int"}}, .compression = "br"}, "\"br\" is not read here; zstd and gz are"},
      {{.columns = {{"x", "int"}}, .compression = "lzma"}, "\"lzma\" is unknown"},
      {{.columns = {{"x", "int"}}, .compression = "gz:x"}, "needs a level from 0 to 9"},
      {{.columns = {{"x", "int"}}, .hashes = {"crc"}}, "the hash \"crc\" is unknown"},
      {{.columns = {{"x", "int"}}, .hashes = {"md5", "md5"}}, "there twice"},
      {{.columns = {{"x", "int"}}, .size_limit = -1}, "size_limit must be from 0 to 4294967295 bytes"},
  };
  for (const auto& [options, text] : wrong) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(MdsWriter(folder / "new", options), doctest::Contains(text), ConfigError);
  }
  CHECK_FALSE(std::filesystem::exists(folder / "new"));
}

}  // namespace composer::mds_writer_test
