#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>
#include <zlib.h>

#include "composer/core/error.h"
#include "composer/formats/zip_reader.h"
#include "tests/formats/bytes.h"
#include "tests/support/doctest.h"

namespace composer::test::zip_test {
namespace {

using namespace formats;

// What reading everything says; empty if nothing.
std::string complaint(const std::string& bytes) {
  try {
    const auto file = bytes_in_memory(bytes);
    const ZipReader zip(*file);
    for (const ZipEntry& entry : zip.entries()) zip.read(entry);
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

void set(std::string& bytes, std::size_t at, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) bytes.at(at + i) = static_cast<char>(value >> 8 * i);
}

// Where the n-th record of this kind begins.
std::size_t find(const std::string& bytes, const char* signature, int n = 0) {
  std::size_t at = bytes.find(std::string(signature, 4));
  while (n-- > 0) at = bytes.find(std::string(signature, 4), at + 1);
  REQUIRE(at != std::string::npos);
  return at;
}
constexpr const char *kLocal = "PK\3\4", *kCentral = "PK\1\2", *kEnd = "PK\5\6", *kEnd64 = "PK\6\6";

// One entry, deflated; `size` is what its records say it will have.
std::string deflated(const std::string& text, std::uint32_t size) {
  std::vector<unsigned char> packed(compressBound(text.size()));
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<unsigned>(text.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<unsigned>(packed.size());
  REQUIRE(::deflate(&stream, Z_FINISH) == Z_STREAM_END);
  deflateEnd(&stream);
  std::string bytes =
      zip_bytes({{"a", std::string(packed.begin(), packed.begin() + static_cast<long>(stream.total_out))}});
  const auto crc = ::crc32(::crc32(0, nullptr, 0), reinterpret_cast<const unsigned char*>(text.data()),
                           static_cast<unsigned>(text.size()));
  set(bytes, find(bytes, kLocal) + 8, 8, 2);
  set(bytes, find(bytes, kCentral) + 10, 8, 2);
  set(bytes, find(bytes, kCentral) + 16, crc, 4);
  set(bytes, find(bytes, kCentral) + 24, size, 4);
  return bytes;
}

TEST_CASE("A zip file gives its entries, stored and deflated") {
  const auto file = bytes_in_memory(zip_bytes({{"b/c", "hello"}, {"a", ""}}));
  const ZipReader zip(*file);
  REQUIRE(zip.entries().size() == 2);
  CHECK(zip.entries()[0].name == "a");
  CHECK(zip.read(zip.entries()[0]).empty());
  CHECK(zip.read(*zip.find("b/c")) == "hello");
  CHECK(zip.find("b/c")->data % 64 == 0);
  CHECK_FALSE(zip.find("b"));

  const std::string text(1'000, 'x');
  const auto packed = bytes_in_memory(deflated(text, 1'000));
  const ZipReader inflating(*packed);
  CHECK(inflating.read(*inflating.find("a")) == text);
}

TEST_CASE("A zip file in which every CRC is 0 has none, and is read without") {
  std::string bytes = zip_bytes({{"a", "hello"}, {"b", "world"}});
  for (int n = 0; n < 2; ++n) set(bytes, find(bytes, kCentral, n) + 16, 0, 4);
  const auto file = bytes_in_memory(bytes);
  const ZipReader zip(*file);
  CHECK(zip.read(*zip.find("a")) == "hello");
  CHECK(zip.read(*zip.find("b")) == "world");
  set(bytes, find(bytes, kCentral) + 16, 1, 4);
  const auto damaged = bytes_in_memory(bytes);
  const ZipReader other(*damaged);
  CHECK_THROWS_WITH_AS(other.read(*other.find("b")), doctest::Contains("b is damaged"), CheckpointError);
}

TEST_CASE("Names that would lead elsewhere are an error") {
  for (const char* name : {"/etc/passwd", "../a", "a/../../b", "a/..", "./a", "a//b", "..\\a", "C:\\a", "", "\xFF"}) {
    CAPTURE(name);
    CHECK(complaint(zip_bytes({{name, "x"}})).find("leaves the folder") != std::string::npos);
  }
  CHECK(complaint(zip_bytes({{std::string("a\0b", 3), "x"}})).find("leaves the folder") != std::string::npos);
  CHECK(complaint(zip_bytes({{"a..b/c..", "x"}})).empty());
  CHECK(complaint(zip_bytes({{"a", "x"}, {"a", "y"}})).find("two entries are called a") != std::string::npos);
}

TEST_CASE("A zip bomb is an error before memory is asked for") {
  CHECK(complaint(deflated(std::string(1'000'000, '\0'), 1'000'000)).find("more than 64 times the file's size") !=
        std::string::npos);
  // One that says less than it has.
  CHECK(complaint(deflated(std::string(10'000, '\0'), 100)).find("longer than declared") != std::string::npos);
  CHECK(complaint(deflated("hello", 6)).find("its size differs from the declared one") != std::string::npos);
  CHECK(complaint(deflated("hello", 6)).find("a at byte") != std::string::npos);
}

TEST_CASE("What is wrong with a zip file is an error") {
  const std::string good = zip_bytes({{"a", "hello"}, {"b", "world"}});
  REQUIRE(complaint(good).empty());
  const auto with = [&](const char* record, int n, std::size_t at, std::uint64_t value, std::size_t size) {
    std::string bytes = good;
    set(bytes, find(bytes, record, n) + at, value, size);
    return complaint(bytes);
  };
  const struct {
    std::string why;
    const char* record;
    int n;
    std::size_t at;
    std::uint64_t value;
    std::size_t size;
    const char* says;
  } cases[] = {
      {"encrypted", kCentral, 0, 8, 1, 2, "encrypted"},
      {"another method", kCentral, 0, 10, 12, 2, "neither stored nor deflated"},
      {"a method of its own in the local header", kLocal, 0, 8, 8, 2, "differs from the directory"},
      {"a wrong CRC", kCentral, 0, 16, 1, 4, "a is damaged"},
      {"a size of 4 GB", kCentral, 0, 24, 0xFFFFFFFE, 4, "two sizes"},
      {"two sizes of 4 GB", kCentral, 0, 20, 0xFFFFFFFEFFFFFFFE, 8, "reaches into the directory"},
      {"another name", kCentral, 0, 46, 'c', 1, "differs from the directory"},
      {"a long name", kCentral, 0, 28, 0xFFFF, 2, "exceeds the directory"},
      {"an entry beyond the file", kCentral, 0, 42, 0xFFFFFFFE, 4, "a wrong offset of an entry"},
      {"two entries at the same place", kCentral, 1, 42, 0, 4, "differs from the directory"},
      {"an entry over another", kCentral, 0, 20, 0x0000004600000046, 8, "overlaps"},
      {"a directory elsewhere", kEnd64, 0, 48, 7, 8, "the two end records differ"},
      {"a directory that is too large", kEnd64, 0, 40, ~std::uint64_t{0}, 8, "the two end records differ"},
      {"2^64 - 1 entries", kEnd64, 0, 24, ~std::uint64_t{0}, 8, "in several parts"},
      {"another number of entries", kEnd, 0, 8, 0x00030003, 4, "the two end records differ"},
      {"a comment that is not there", kEnd, 0, 20, 1, 2, "no end record"},
      {"several disks", kEnd, 0, 4, 1, 2, "in several parts"},
  };
  for (const auto& [why, record, n, at, value, size, says] : cases) {
    CAPTURE(why);
    const std::string said = with(record, n, at, value, size);
    CAPTURE(said);
    CHECK(said.find(says) != std::string::npos);
  }
  CHECK(complaint("").find("not a zip file") != std::string::npos);
  CHECK(complaint("x" + good).find("at byte") != std::string::npos);
}

// A file of which only what is not zero is kept.
class SparseFile final : public ByteSource {
 public:
  SparseFile() : ByteSource("sparse") {}
  using ByteSource::read;
  void append(const char* data, std::size_t size, bool zeros) {
    if (!zeros) parts_[size_] = std::string(data, size);
    size_ += size;
  }
  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, void* to, std::size_t size) const override {
    std::memset(to, 0, size);
    for (const auto& [at, part] : parts_) {
      const std::uint64_t from = std::max(at, offset), end = std::min(at + part.size(), offset + size);
      if (from < end) std::memcpy(static_cast<char*>(to) + (from - offset), part.data() + (from - at), end - from);
    }
  }

 private:
  std::map<std::uint64_t, std::string> parts_;
  std::uint64_t size_ = 0;
};

TEST_CASE("An entry of more than 4 GiB has its sizes in 8 bytes behind the data, and the one behind it is found") {
  SparseFile file;
  const std::string zeros(1 << 20, '\0');
  const Sink sink = [&](const void* data, std::size_t size) {
    file.append(static_cast<const char*>(data), size, data == zeros.data());
  };
  ZipWriter zip(sink);
  zip.begin("large");
  const std::uint64_t pieces = 4097;
  for (std::uint64_t i = 0; i < pieces; ++i) zip.write(zeros.data(), zeros.size());
  const std::uint64_t end = file.size();
  zip.end();
  zip.entry("small", "text");
  zip.finish();
  const std::uint64_t large = pieces << 20;
  const std::string after = file.read(end, 24);
  CHECK(after.substr(0, 4) == "PK\7\10");
  for (const std::size_t at : {8U, 16U}) {
    std::uint64_t size = 0;
    std::memcpy(&size, after.data() + at, sizeof size);
    CHECK(size == large);
  }
  const ZipReader reader(file);
  REQUIRE(reader.find("large"));
  CHECK(reader.find("large")->size == large);
  CHECK(reader.read(*reader.find("small")) == "text");
}

}  // namespace
}  // namespace composer::test::zip_test
