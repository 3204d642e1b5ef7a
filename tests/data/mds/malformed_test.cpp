// Damaged and forged files: each is a DataError of one line that names the file, and none is read as something else.
#include <algorithm>
#include <cstring>
#include <functional>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/mds/mds_compression.h"
#include "composer/data/mds/mds_index.h"
#include "composer/data/mds/mds_shard.h"
#include "composer/data/mds/mds_value.h"
#include "composer/data/mds/streaming_dataset.h"
#include "composer/util/random.h"
#include "tests/data/mds/support.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

namespace composer::mds_malformed_test {

using data::StreamingDataset;
using data::detail::MdsColumns;
using data::detail::parse_mds_encoding;
using test::content_of;
using test::Folder;
using test::golden_mds;
using test::write_content;

namespace {

struct Index {
  std::string file = R"({"basename": "s.mds", "bytes": 100, "hashes": {}})", zip = "null", names = R"(["x"])",
              encodings = R"(["int"])", sizes = "[8]", samples = "3", format = R"("mds")", version = "2",
              compression = "null", more = "", top = "";
  std::string text() const {
    return R"({"shards": [{"column_encodings": )" + encodings + R"(, "column_names": )" + names +
           R"(, "column_sizes": )" + sizes + R"(, "compression": )" + compression + R"(, "format": )" + format +
           R"(, "hashes": [], "raw_data": )" + file + R"(, "samples": )" + samples +
           R"(, "size_limit": 67108864, "version": )" + version + R"(, "zip_data": )" + zip + more +
           R"(}], "version": 2)" + top + "}";
  }
};

std::string file_named(const std::string& name) {
  return R"({"basename": ")" + name + R"(", "bytes": 100, "hashes": {}})";
}

// A shard of an `a` of 8 bytes and a `b` of any size, as its parts.
struct Shard {
  std::uint32_t count = 2;
  std::vector<std::uint32_t> places = {20, 36, 52};
  std::string samples;
  std::string bytes() const {
    std::string all(reinterpret_cast<const char*>(&count), 4);
    all.append(reinterpret_cast<const char*>(places.data()), 4 * places.size());
    all.append(20 - std::min<std::size_t>(all.size(), 20), ' ');
    return all + samples;
  }
};

std::string sample_of(std::uint32_t size, const std::string& b) {
  return std::string(reinterpret_cast<const char*>(&size), 4) + "12345678" + b;
}

const std::string kTwo = sample_of(4, "abcd") + sample_of(4, "efgh");

std::string read_error(const std::string& shard, std::int64_t samples = 2, std::uint64_t bytes = 0) {
  const Folder folder;
  write_content(folder / "s.mds", shard);
  const std::string size = std::to_string(bytes == 0 ? shard.size() : bytes);
  Index index{.file = R"({"basename": "s.mds", "bytes": )" + size + R"(, "hashes": {}})",
              .names = R"(["a", "b"])",
              .encodings = R"(["int", "bytes"])",
              .sizes = "[8, null]",
              .samples = std::to_string(samples)};
  write_content(folder / "index.json", index.text());
  return test::error_of([&] {
    const StreamingDataset data({.local = folder.path()});
    for (std::int64_t i = 0; i < data.size(); ++i) data.get(i);
  });
}

std::string number(std::uint64_t value, std::size_t bytes) { return {reinterpret_cast<const char*>(&value), bytes}; }

}  // namespace

TEST_CASE("An index.json that is not one of MDS is refused with its place and what is wrong") {
  const std::vector<std::pair<std::string, const char*>> wrong = {
      {"", "expected { at byte 0; it is not the index.json of an MDS data set"},
      {"[]", "expected {"},
      {"<html>", "expected {"},
      {"{}", "needs \"version\" and \"shards\""},
      {R"({"version": 2})", "needs \"version\" and \"shards\""},
      {R"({"version": 1, "shards": []})", "is of version 1 of MDS, and version 2 is read"},
      {R"({"version": "2", "shards": []})", "expected an integer"},
      {R"({"version": 2, "shards": {}})", "expected ["},
      {R"({"version": 2, "shards": [1]})", "expected {"},
      {R"({"version": 2, "shards": [], "shards": []})", "\"shards\" is unknown, or is there twice"},
      {Index().text() + "x", "extra text after the end"},
      {Index().text().substr(0, 200), "expected"},
      {Index{.top = R"(, "extra": 1)"}.text(), "\"extra\" is unknown"},
      {Index{.more = R"(, "newline": "x")"}.text(), "shard 0: \"newline\" is unknown"},
      {Index{.more = R"(, "samples": 3)"}.text(), "\"samples\" is unknown, or is there twice"},
      {Index{.version = "3"}.text(), "shard 0: is of version 3"},
      {Index{.format = R"("csv")"}.text(), "is in the format \"csv\", and mds is read"},
      {Index{.samples = "-1"}.text(), "expected an integer that is not negative"},
      {Index{.samples = "24"}.text(), "has 24 samples in 100 bytes, which cannot hold them"},
      {Index{.samples = "9223372036854775807"}.text(), "which cannot hold them"},
      {Index{.samples = "1e3"}.text(), "expected"},
      {Index{.file = "null"}.text(), "expected {"},
      {Index{.file = file_named("../s.mds")}.text(), "\"../s.mds\" cannot be the name of a shard's file"},
      {Index{.file = file_named("/etc/passwd")}.text(), "cannot be the name"},
      {Index{.file = file_named("")}.text(), "cannot be the name"},
      {Index{.file = file_named("a/./b")}.text(), "cannot be the name"},
      {Index{.file = file_named("a\\u0000b")}.text(), "cannot be the name"},
      {Index{.file = file_named("index.json")}.text(), "cannot be the name"},
      {Index{.file = R"({"basename": "s.mds", "hashes": {}})"}.text(), "s.mds needs \"bytes\""},
      {Index{.file = R"({"basename": "s.mds", "bytes": 4294967296, "hashes": {}})"}.text(),
       "a shard has at most 4294967295"},
      {Index{.file = R"({"basename": "s.mds", "bytes": 100, "hashes": {"md5": 5}})"}.text(), "expected \""},
      {Index{.zip = file_named("s.mds.zstd")}.text(), "needs both \"compression\" and \"zip_data\""},
      {Index{.compression = R"("zstd")"}.text(), "needs both \"compression\" and \"zip_data\""},
      {Index{.zip = file_named("s.mds"), .compression = R"("zstd")"}.text(), "s.mds is there twice"},
      {Index{.names = "[]", .encodings = "[]", .sizes = "[]"}.text(), "has no columns"},
      {Index{.names = R"(["x", "y"])"}.text(), "has 2 column_names, 1 column_encodings and 1 column_sizes"},
      {Index{.names = R"(["x", "x"])", .encodings = R"(["int", "int"])", .sizes = "[8, 8]"}.text(),
       "has two columns \"x\""},
      {Index{.encodings = R"(["float128"])"}.text(), "column \"x\" has the encoding \"float128\"; known are bytes"},
      {Index{.encodings = R"(["ndarray:int32:-1"])"}.text(), "has the encoding \"ndarray:int32:-1\""},
      {Index{.encodings = R"(["ndarray:int32:4294967296,4294967296"])"}.text(), "has the encoding"},
      {Index{.encodings = R"(["ndarray:int32:3,"])"}.text(), "has the encoding"},
      {Index{.sizes = "[4]"}.text(), "has values of 4 bytes, and its encoding \"int\" takes 8"},
      {Index{.sizes = "[null]"}.text(), "has values of 0 bytes, and its encoding \"int\" takes 8"},
      {Index{.encodings = R"(["str"])"}.text(), "its encoding \"str\" takes any number"},
      {Index{.encodings = R"(["pkl"])", .sizes = "[null]"}.text(), "column \"x\" of"},
      {std::string(1 << 20, '['), "expected {"},
  };
  CHECK(wrong.size() > 40);
  const Folder folder;
  for (const auto& [text, what] : wrong) {
    write_content(folder / "index.json", text);
    const std::string error = test::error_of([&] { StreamingDataset({.local = folder.path()}); });
    CAPTURE(text.substr(0, 500));
    CAPTURE(error);
    CHECK(error.find(what) != std::string::npos);
    CHECK(error.find("index.json") != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
  }
  write_content(folder / "index.json", Index().text());
  CHECK(StreamingDataset({.local = folder.path()}).size() == 3);
}

TEST_CASE("A shard that is not what the index says is refused before anything of it is used") {
  REQUIRE(read_error(Shard{.samples = kTwo}.bytes()) == "no error");
  const std::vector<std::pair<std::string, const char*>> wrong = {
      {read_error(Shard{.samples = kTwo}.bytes(), 2, 60), "s.mds: has 52 bytes, and 60 by index.json"},
      {read_error(Shard{.samples = kTwo + "x"}.bytes(), 2, 52), "has 53 bytes, and 52 by index.json"},
      {read_error(Shard{.samples = kTwo}.bytes(), 1), "has 2 samples, and 1 by index.json"},
      {read_error(Shard{.count = 0xffffffff, .samples = kTwo}.bytes()), "has 4294967295 samples, and 2"},
      {read_error(Shard{.places = {20, 36, 53}, .samples = kTwo}.bytes()),
       "sample 2 begins at byte 53, which must lie from 36 to 52"},
      {read_error(Shard{.places = {20, 19, 52}, .samples = kTwo}.bytes()),
       "byte 8 says that sample 1 begins at byte 19"},
      {read_error(Shard{.places = {0, 36, 52}, .samples = kTwo}.bytes()),
       "sample 0 begins at byte 0, which must lie from 16"},
      {read_error(Shard{.places = {20, 36, 50}, .samples = kTwo}.bytes()), "its last sample ends at byte 50 of 52"},
      {read_error(Shard{.places = {20, 0xfffffff0, 52}, .samples = kTwo}.bytes()), "begins at byte 4294967280"},
      {read_error(Shard{.places = {20, 20, 52}, .samples = kTwo}.bytes()),
       "sample 0: has 0 bytes, too few for the sizes of 1 columns"},
      {read_error(Shard{.places = {20, 30, 52}, .samples = kTwo}.bytes()),
       "sample 0: column \"a\" has 8 bytes, and 6 are left"},
      {read_error(Shard{.places = {20, 37, 52}, .samples = kTwo}.bytes()),
       "sample 0: has 1 bytes after its last column"},
      {read_error(Shard{.samples = sample_of(5, "abcd") + sample_of(4, "efgh")}.bytes()),
       "column \"b\" has 5 bytes, and 4 are left"},
      {read_error(Shard{.samples = sample_of(0xffffffff, "abcd") + sample_of(4, "efgh")}.bytes()),
       "column \"b\" has 4294967295 bytes"},
      {read_error(Shard{.samples = sample_of(3, "abcd") + sample_of(4, "efgh")}.bytes()),
       "has 1 bytes after its last column"},
  };
  for (const auto& [error, what] : wrong) {
    CAPTURE(error);
    CHECK(error.find(what) != std::string::npos);
    CHECK(error.find("s.mds: ") != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
  }
}

TEST_CASE("A value that is damaged is refused, whatever sizes it claims") {
  const auto fails = [](const char* encoding, const std::string& bytes, const char* text) {
    CAPTURE(encoding);
    CAPTURE(text);
    const auto how = *parse_mds_encoding(encoding);
    using data::detail::MdsKind;
    const auto read = [&] {
      if (how.kind == MdsKind::PIL)
        data::detail::read_mds_pil(bytes);
      else if (how.kind == MdsKind::LIST || how.kind == MdsKind::JPEG_ARRAY)
        data::detail::read_mds_list(how, bytes);
      else if (how.kind == MdsKind::STR_INT)
        data::detail::read_mds_integer(how, bytes);
      else if (how.is_number() && how.kind != MdsKind::SCALAR)
        data::detail::read_mds_double(how, bytes);
      else
        data::detail::read_mds_array(how, bytes);
    };
    CHECK_THROWS_WITH_AS(read(), doctest::Contains(text), DataError);
  };
  fails("int", "1234567", "takes 8 bytes, and 7 are there");
  fails("ndarray", "", "ends within the dtype of its array");
  fails("ndarray", "\x07", "has an array of the unknown dtype 7");
  fails("ndarray", "\x08", "ends within the shape of its array");
  fails("ndarray", "\x08\x08", "ends within the shape of its array");
  fails("ndarray",
        "\x08\x04\x05"
        "1234",
        "has an array [5] of uint8, which takes 5 bytes, and 4 are there");
  fails("ndarray",
        "\x08\x04\x03"
        "1234",
        "which takes 3 bytes, and 4 are there");
  fails("ndarray", "\x42\x0b" + std::string(16, '\xff'), "has an array with a dimension of 18446744073709551615");
  fails("ndarray", "\x42\x0b" + number(std::uint64_t{1} << 40, 8) + number(std::uint64_t{1} << 40, 8),
        "cannot be counted");
  fails("ndarray:int32",
        "\x04\x02"
        "1234",
        "takes 8 bytes, and 4 are there");
  fails("ndarray:int32:2", "1234", "takes 8 bytes, and 4 are there");
  fails("pil", "12345678901", "ends within the size of its image");
  fails("pil", number(2, 4) + number(2, 4) + number(9, 4) + "RGB", "ends within the mode");
  fails("pil", number(2, 4) + number(2, 4) + number(3, 4) + "RGBxxx", "takes 12 bytes, and 3 are there");
  fails("pil", number(2, 4) + number(2, 4) + number(1, 4) + "P1234", "of the mode \"P\"");
  fails("pil", number(0xffffffff, 4) + number(0xffffffff, 4) + number(4, 4) + "RGBA", "cannot be counted");
  fails("list[png]", number(0, 4) + number(0xffffffff, 4), "ends within the sizes of its list");
  fails("list[png]", number(0, 4) + number(1, 4) + number(5, 4) + "1234",
        "item 0 of its list has 5 bytes, and 4 are left");
  fails("list[png]", number(0, 4) + number(1, 4) + number(3, 4) + "1234", "has 1 bytes after its list");
  fails("jpeg_array", number(2, 4) + number(1, 4), "ends within the sizes");
  fails("str_int", "", "\"\" is not an integer");
  fails("str_int", "12x", "\"12x\" is not an integer");
  fails("str_int", "9223372036854775808", "is out of the range");
  fails("str_float", "1,5", "\"1,5\" is not a number");
  fails("str_decimal", "x", "\"x\" is not a number");
}

TEST_CASE("A compressed shard that is damaged, cut off, or larger than it says is refused and leaves no file") {
  for (const char* name : {"zstd", "gz"}) {
    if (!test::has(name)) continue;
    const std::string good = content_of(golden_mds(name) / ("shard.00000.mds." + std::string(name)));
    const auto how = data::detail::parse_mds_compression("", name);
    const std::uint64_t size =
        data::detail::read_mds_index(content_of(golden_mds(name) / "index.json"), "")[0].raw.bytes;
    const auto error_of_bytes = [&](const std::string& bytes, std::uint64_t expected) {
      const Folder folder;
      write_content(folder / (std::string("z.") + name), bytes);
      const std::string error = test::error_of(
          [&] { data::detail::mds_decompress(how, folder / (std::string("z.") + name), folder / "raw", expected); });
      CHECK(std::filesystem::exists(folder / "raw") == (error == "no error"));
      return error;
    };
    CHECK(error_of_bytes(good, size) == "no error");
    CHECK(error_of_bytes(good, size - 1).find("holds more than the ") != std::string::npos);
    CHECK(error_of_bytes(good, size + 1).find("holds only ") != std::string::npos);
    CHECK(error_of_bytes("", size) != "no error");
    for (std::size_t end = 1; end < good.size(); end += 7)
      CHECK(error_of_bytes(good.substr(0, end), size) != "no error");
    const std::string bomb = data::detail::mds_compressed(how, std::string(50 << 20, '\0'));
    CHECK(error_of_bytes(bomb, size).find("more than") != std::string::npos);
    RandomStream random(5);
    int refused = 0;
    for (int i = 0; i < 200; ++i) {
      std::string bad = good;
      bad[random.below(bad.size())] ^= static_cast<char>(1 << random.below(8));
      refused += error_of_bytes(bad, size) != "no error" ? 1 : 0;
    }
    CHECK(refused > 50);  // zstd has no checksum here, so validate_hash finds the rest
  }
}

TEST_CASE("Shards and an index with random damage are refused or read, and never more than that") {
  for (const char* which : {"index.json", "shard.00000.mds"}) {
    const Folder folder;
    std::filesystem::copy(golden_mds("kinds"), folder / "d");
    const std::string good = content_of(folder / "d" / which);
    RandomStream random(7);
    for (int i = 0; i < 400; ++i) {
      std::string bad = good;
      for (std::uint64_t n = 0; n <= random.below(3); ++n)
        bad[random.below(bad.size())] = static_cast<char>(random.next());
      write_content(folder / "d" / which, bad);
      try {
        const StreamingDataset data({.local = folder / "d"});
        for (std::int64_t s = 0; s < data.size(); ++s) {
          const auto sample = data.sample(s);
          for (const std::string& name : sample.names())
            if (!sample.encoding(name).starts_with("list") && sample.encoding(name) != "jpeg_array")
              sample.tensor(name);
        }
      } catch (const DataError&) {
      }
    }
  }
}

TEST_CASE("A hash that differs is found with validate_hash, and one that the index lacks is refused") {
  const Folder folder;
  std::filesystem::copy(golden_mds("many"), folder / "d");
  std::string shard = content_of(folder / "d/shard.00002.mds");
  shard.back() ^= 1;
  write_content(folder / "d/shard.00002.mds", shard);
  const StreamingDataset unaware({.local = folder / "d"});
  for (std::int64_t i = 0; i < unaware.size(); ++i) unaware.sample(i);
  const StreamingDataset data({.local = folder / "d", .validate_hash = "xxh64"});
  CHECK(data.sample(0).integer("id") == 0);
  const std::string error = test::error_of([&] { data.sample(40); });
  CHECK(error.find("shard.00002.mds: its xxh64 is not ") != std::string::npos);
  CHECK_THROWS_WITH_AS(StreamingDataset({.local = folder / "d", .validate_hash = "md5"}),
                       doctest::Contains("shard 0: has no md5 for validate_hash; there are sha1, xxh64"), ConfigError);
  CHECK_THROWS_WITH_AS(StreamingDataset({.local = folder / "d", .validate_hash = "crc"}),
                       doctest::Contains("validate_hash \"crc\" is unknown; known are md5"), ConfigError);
}

TEST_CASE("A column of pickles is refused, and may be left out") {
  const Folder folder;
  Index index{.names = R"(["p", "x"])", .encodings = R"(["pkl", "int"])", .sizes = "[null, 8]"};
  write_content(folder / "index.json", index.text());
  CHECK_THROWS_WITH_AS(StreamingDataset({.local = folder.path()}),
                       doctest::Contains("has Python pickles, which are code, and are never run here"), DataError);
  CHECK(StreamingDataset({.local = folder.path(), .columns = {"x"}}).size() == 3);
}

}  // namespace composer::mds_malformed_test
