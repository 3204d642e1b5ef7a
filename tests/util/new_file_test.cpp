#include "composer/util/new_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "composer/core/error.h"
#include "tests/formats/bytes.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::util::new_file_test {
namespace {

namespace fs = std::filesystem;
using test::text_of;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void write(const fs::path& path, const std::string& text) {
  NewFile file(path);
  file.write(text);
  file.commit();
}

TEST_CASE("Two files of one target, written at once, are each whole; one that is not committed leaves nothing") {
  const test::Folder folder;
  NewFile one(folder / "w"), two(folder / "w");
  {
    NewFile third(folder / "w");
    third.write("never");
  }
  one.write("one");
  two.write("two, longer");
  two.commit();
  CHECK(text_of(folder / "w") == "two, longer");
  one.commit();
  CHECK(text_of(folder / "w") == "one");
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("A file whose name has all the 255 bytes that a name may have is written, and its leftovers removed") {
  const test::Folder folder;
  const std::string name(255, 'n');
  std::ofstream(folder / (name.substr(0, 200) + ".tmp-123-4")) << "left";
  write(folder / name, "text");
  CHECK(text_of(folder / name) == "text");
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("A link as target stays, and the file it leads to is replaced") {
  const test::Folder folder;
  fs::create_directory(folder / "else");
  write(folder / "else/real", "old");
  fs::create_symlink("else/real", folder / "w");
  write(folder / "w", "new");
  CHECK(fs::is_symlink(folder / "w"));
  CHECK(text_of(folder / "else/real") == "new");
}

TEST_CASE("What a killed process has left of the same target is removed, and nothing else") {
  const test::Folder folder;
  for (const char* name : {"w.tmp-123-4", "w.tmp-123", "w.tmp-x-1", "w2.tmp-123-4", "w.tmp-"})
    std::ofstream(folder / name) << "left";
  write(folder / "w", "new");
  CHECK_FALSE(fs::exists(folder / "w.tmp-123-4"));
  for (const char* name : {"w.tmp-123", "w.tmp-x-1", "w2.tmp-123-4", "w.tmp-"}) CHECK(fs::exists(folder / name));
}

TEST_CASE("A folder or device as target is an Error and stays") {
  const test::Folder folder;
  fs::create_directory(folder / "w");
  CHECK_THROWS_WITH_AS(NewFile(folder / "w"), doctest::Contains("is not a file"), Error);
  CHECK_THROWS_AS(NewFile("/dev/null"), Error);
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("A folder that cannot be made is an Error that names it") {
  const test::Folder folder;
  write(folder / "file", "x");
  CHECK_THROWS_WITH_AS(NewFile(folder / "file/w"), doctest::Contains("file"), Error);
}

}  // namespace
}  // namespace composer::util::new_file_test
