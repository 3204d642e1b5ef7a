#include <string>
#include <vector>

#include "composer/data/image/decode.h"
#include "tests/support/doctest.h"

namespace composer::exif_test {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes number(bool little, std::uint64_t value, std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[little ? i : size - 1 - i] = static_cast<std::uint8_t>(value >> (8 * i));
  return bytes;
}

void append(Bytes& to, const Bytes& bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

struct Entry {
  std::uint64_t tag, type, count, value;
};

// A TIFF header, and a directory at `offset`, which may say that it has another number of entries.
Bytes tiff(bool little, const std::vector<Entry>& entries, std::uint64_t offset = 8, std::uint64_t magic = 42,
           std::uint64_t says = 0) {
  Bytes bytes = little ? Bytes{'I', 'I'} : Bytes{'M', 'M'};
  append(bytes, number(little, magic, 2));
  append(bytes, number(little, offset, 4));
  append(bytes, number(little, says ? says : entries.size(), 2));
  for (const Entry& entry : entries) {
    append(bytes, number(little, entry.tag, 2));
    append(bytes, number(little, entry.type, 2));
    append(bytes, number(little, entry.count, 4));
    append(bytes, number(little, entry.value, 2));
    append(bytes, number(little, 0, 2));
  }
  return bytes;
}

int orientation_of(const Bytes& bytes) { return data::detail::exif_orientation(bytes); }

constexpr Entry kMake{0x010f, 2, 6, 30}, kUnit{0x0128, 3, 1, 2};

}  // namespace

TEST_CASE("The orientation is found in both byte orders, wherever it stands") {
  for (const bool little : {true, false})
    for (std::uint64_t value = 1; value <= 8; ++value) {
      const Entry entry{0x0112, 3, 1, value};
      CHECK(orientation_of(tiff(little, {entry})) == static_cast<int>(value));
      CHECK(orientation_of(tiff(little, {kMake, kUnit, entry})) == static_cast<int>(value));
    }
}

TEST_CASE("EXIF data that is damaged, or meant to harm, leaves the image as it is") {
  const Entry six{0x0112, 3, 1, 6};
  const struct {
    const char* what;
    Bytes bytes;
  } rows[] = {
      {"nothing", {}},
      {"a byte", {'I'}},
      {"a byte order alone", {'I', 'I'}},
      {"an unknown byte order", {'X', 'X', 42, 0, 8, 0, 0, 0, 1, 0}},
      {"mixed byte orders", {'I', 'M', 42, 0, 8, 0, 0, 0, 1, 0}},
      {"another magic number", tiff(true, {six}, 8, 43)},
      {"a directory beyond the end", tiff(true, {six}, 10000)},
      {"a directory at the last address", tiff(true, {six}, 0xFFFFFFFF)},
      {"a directory in the middle of itself", tiff(true, {six}, 9)},
      {"a directory in the header", tiff(false, {six}, 0)},
      {"65535 entries of which one is there", tiff(true, {kMake}, 8, 42, 65535)},
      {"no entries", tiff(true, {})},
      {"orientation 0", tiff(true, {{0x0112, 3, 1, 0}})},
      {"orientation 9", tiff(true, {{0x0112, 3, 1, 9}})},
      {"orientation 65535", tiff(false, {{0x0112, 3, 1, 65535}})},
      {"an orientation that is a text", tiff(true, {{0x0112, 2, 1, 6}})},
  };
  for (const auto& [what, bytes] : rows) {
    INFO(what);
    CHECK(orientation_of(bytes) == 1);
  }
}

TEST_CASE("EXIF data that is cut off anywhere is no orientation, or the one that it has") {
  const Bytes whole = tiff(false, {kMake, {0x0112, 3, 1, 8}, kUnit});
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const int found = orientation_of(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    CHECK((found == 1 || found == 8));
  }
}

}  // namespace composer::exif_test
