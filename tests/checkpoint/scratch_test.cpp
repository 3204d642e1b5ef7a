#include "composer/checkpoint/scratch.h"

#include <filesystem>
#include <string>

#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::saving::scratch_test {
namespace {

namespace fs = std::filesystem;

TEST_CASE("What killed processes have left is looked for once, before the first temporary folder of its kind") {
  const test::Folder folder;
  const fs::path left = folder / "some-dead00", user = folder / "some-of-a-user";
  fs::create_directories(left / "inner");
  fs::create_directories(user);
  {
    const Scratch first(folder.path(), "some-");
    CHECK_FALSE(fs::exists(left));
    CHECK(fs::is_empty(first.path()));
    fs::create_directories(left);
    const Scratch second(folder.path(), "some-");
    CHECK(second.path() != first.path());
    CHECK(fs::exists(left));  // whoever lists the folder for each one is slow where it has many entries
    fs::create_directories(folder / "other-dead00");
    const Scratch of_another_kind(folder.path(), "other-");
    CHECK_FALSE(fs::exists(folder / "other-dead00"));
    Scratch::remove_leftovers(folder.path(), "some-");
    CHECK_FALSE(fs::exists(left));
    CHECK(fs::exists(first.path()));
  }
  CHECK(fs::exists(user));
  CHECK(fs::directory_iterator(folder.path()) != fs::directory_iterator());
  fs::remove(user);
  CHECK(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace composer::saving::scratch_test
