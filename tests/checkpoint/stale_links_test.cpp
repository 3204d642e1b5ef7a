// A link that cannot be moved does not stay where it leads to an older checkpoint.
#include <algorithm>
#include <filesystem>
#include <string>

#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "tests/checkpoint/checkpoints.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::stale_links_test {
namespace {

namespace fs = std::filesystem;

// A disk that makes no links from some moment on, as a share that was mounted anew.
struct LosesLinks final : saving::FileSystem {
  bool make_link(const Path& target, const Path& path) override {
    return has_links && saving::FileSystem::make_link(target, path);
  }
  bool has_links = true;
};

TEST_CASE("Where no links can be made any more, the old one is removed, with one warning, and the newest is found") {
  const Scratch scratch;
  LosesLinks files;
  write(scratch.path, 1, files, "ba1");
  REQUIRE(fs::is_symlink(scratch.path / "latest"));
  const Warnings warnings;
  files.has_links = false;
  for (const int batch : {2, 3}) {
    write(scratch.path, batch, files, join("ba", batch));
    CHECK_FALSE(fs::is_symlink(scratch.path / "latest"));
    CHECK(whole_latest(scratch.path) == batch);
  }
  CHECK(warnings.texts.size() == 1);
  CHECK(warnings.say("latest is removed, because no links can be made there"));
  files.has_links = true;
  write(scratch.path, 4, files, "ba4");
  CHECK(fs::read_symlink(scratch.path / "latest") == "ba4");
}

TEST_CASE("The link to the best checkpoint does not stay at another, either") {
  const Scratch scratch;
  LosesLinks files;
  write(scratch.path, 1, files, "ba1");
  write(scratch.path, 2, files, "ba2");
  saving::CheckpointFolder folder(scratch.path, "run", files);
  folder.point("best", "ba1");
  files.has_links = false;
  const Warnings warnings;
  folder.point("best", "ba2");
  CHECK_FALSE(fs::is_symlink(scratch.path / "best"));
  CHECK(warnings.say("best is removed"));
}

TEST_CASE("Of a link that leads to itself, or to no possible name, the newest checkpoint is found") {
  for (const std::string& target : {std::string("latest"), std::string(300, 'a'), std::string(3, '/')}) {
    const Scratch scratch;
    for (const int batch : {1, 2}) write(scratch.path, batch, saving::real_files(), join("ba", batch));
    fs::remove(scratch.path / "latest");
    fs::create_directory_symlink(target, scratch.path / "latest");
    const Warnings warnings;
    CHECK(whole_latest(scratch.path) == 2);
    CHECK(warnings.say("latest: is not a checkpoint"));
  }
}

TEST_CASE("A link to the best that leads to itself is removed as one that leads to nothing") {
  for (const std::string& target : {std::string("best"), std::string(300, 'a'), std::string("gone")}) {
    const Scratch scratch;
    write(scratch.path, 1, saving::real_files(), "ba1");
    fs::create_directory_symlink(target, scratch.path / "best");
    CHECK_NOTHROW(saving::CheckpointFolder(scratch.path, "run", saving::real_files()).unlink("best", "r"));
    CHECK_FALSE(fs::is_symlink(scratch.path / "best"));
  }
}

TEST_CASE("A link that was set back by hand holds, though there are later checkpoints") {
  const Scratch scratch;
  for (const int batch : {1, 2, 3}) write(scratch.path, batch, saving::real_files(), join("ba", batch));
  fs::remove(scratch.path / "latest");
  fs::create_directory_symlink("ba2", scratch.path / "latest");
  CHECK(whole_latest(scratch.path) == 2);
}

}  // namespace
}  // namespace composer::test::stale_links_test
