#include "composer/data/idx.h"

#include <optional>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/idx_files.h"

namespace composer::idx_test {

using namespace test;
using data::read_idx;

namespace {

const Bytes kElements = "abcdefghijkl";
const at::Tensor kExpected = at::arange(97, 97 + 12, at::kByte).view({2, 3, 2});

// The array, or nothing if the file was refused. Anything else but DataError fails the test.
std::optional<at::Tensor> try_read(const std::filesystem::path& file) {
  try {
    return read_idx(file);
  } catch (const DataError& error) {
    CHECK(std::string(error.what()).starts_with(file.string()));
    return std::nullopt;
  }
}

void refuse(const Bytes& bytes, const char* text, const char* name = "x") {
  const TemporaryFolder folder;
  write(folder / name, bytes);
  CHECK_THROWS_WITH_AS(read_idx(folder / name), doctest::Contains(text), DataError);
}

}  // namespace

TEST_CASE("An idx file gives its array, plain and compressed") {
  const TemporaryFolder folder;
  write(folder / "x", idx({2, 3, 2}, kElements));
  write(folder / "x.gz", gzip(idx({2, 3, 2}, kElements)));
  CHECK(read_idx(folder / "x").equal(kExpected));
  CHECK(read_idx(folder / "x.gz").equal(kExpected));
  const Bytes bytes = idx({2, 3, 2}, kElements);
  write(folder / "zeros.gz", gzip(idx({2, 3, 2}, kElements)) + std::string(100000, '\0'));
  CHECK(read_idx(folder / "zeros.gz").equal(kExpected));
  write(folder / "joined.gz", gzip(bytes.substr(0, 20)) + gzip("") + gzip(bytes.substr(20)));
  CHECK(read_idx(folder / "joined.gz").equal(kExpected));
}

TEST_CASE("Each kind of damage is told") {
  refuse("", "cut off within its header");
  refuse("\x89PNG....",
         "not an idx file: expected it to begin with 000008 and the number of dimensions, found 89504e47");
  refuse(idx({}, ""), "found 00000800");
  refuse(idx(std::vector<std::uint32_t>(9, 1), "a"), "found 00000809");
  refuse(idx({2}, "abcdefgh", 13), "expected elements of type 08 (uint8), found type 0d");
  refuse(idx({12}, "abc"), "header describes an array of [12] bytes, more than the file can hold");
  refuse(idx({12}, kElements + "m"), "expected 12 bytes of data, found more");
  refuse(idx({2, 0, 3}, ""), "dimension 1 has length 0");
  refuse(idx({0xffffffff, 0xffffffff, 0xffffffff}, "abc"), "more than the file can hold");
  refuse(idx({0xffffffff}, "abc"), "[4294967295] bytes");
  refuse(gzip(idx({100000, 60000}, "abc")), "more than the file can hold", "x.gz");
  refuse(gzip(idx({100}, "abc")), "cut off: expected 100 bytes of data, found 3", "x.gz");
  refuse(gzip(idx({3}, "abcd")), "expected 3 bytes of data, found more", "x.gz");
  refuse(gzip(idx({3}, "abc")) + "more", "more bytes after the end of its gzip data", "x.gz");
  refuse(gzip(idx({3}, "abc")) + std::string(70000, '\0') + "more", "more bytes after the end of its gzip", "x.gz");
  refuse(gzip(idx({3}, "abc")) + gzip("d"), "expected 3 bytes of data, found more", "x.gz");
  refuse(gzip(idx({3}, "abc")) + gzip("").substr(0, 12), "its gzip data has no end", "x.gz");
  refuse(idx({12}, kElements), "not gzip data", "x.gz");
  refuse(idx({12}, kElements), "if it is not compressed, remove .gz from its name", "x.gz");
  refuse(gzip(idx({12}, kElements)), "it is compressed; call it x.gz");
  refuse("", "its gzip data has no end", "x.gz");
}

TEST_CASE("A missing file and a folder are errors that name them") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(read_idx(folder / "none"), doctest::Contains("none: cannot be opened: No such file"), DataError);
  CHECK_THROWS_WITH_AS(read_idx(folder.path()), doctest::Contains("is a folder"), DataError);
}

TEST_CASE("A file cut off anywhere, or with any byte changed, is refused or gives the right array") {
  const TemporaryFolder folder;
  for (bool compressed : {false, true}) {
    const Bytes plain = idx({2, 3, 2}, kElements), whole = compressed ? gzip(plain) : plain;
    const std::filesystem::path file = folder / (compressed ? "x.gz" : "x");
    for (std::size_t length = 0; length < whole.size(); ++length) {
      write(file, whole.substr(0, length));
      CHECK_FALSE(try_read(file));
    }
    const std::size_t changed = compressed ? whole.size() : 16;  // plain elements can be anything
    for (std::size_t at = 0; at < changed; ++at) {
      for (int flip = 1; flip < 256; ++flip) {
        Bytes bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ flip);
        write(file, bytes);
        const auto got = try_read(file);
        CHECK((!got || got->equal(kExpected)));
      }
    }
  }
}

}  // namespace composer::idx_test
