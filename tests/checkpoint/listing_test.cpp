// What a save folder says it has, when it cannot be read, changes meanwhile, or was written by others.
#include <atomic>
#include <cerrno>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "composer/checkpoint/conflicts.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/walk.h"
#include "composer/core/error.h"
#include "tests/checkpoint/checkpoints.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/warnings.h"

namespace composer::saving::listing_test {
namespace {

namespace fs = std::filesystem;
using test::Scratch;
using test::write;

void write_newer(const fs::path& path, const std::string& name) {
  Manifest manifest = test::manifest_of(9, name);
  manifest.version = Manifest::kVersion + 1;
  CheckpointFolder(path, "run", real_files()).write(manifest, test::files_of(9), "latest", /*overwrite=*/true);
}

// Fails to list or look up some paths, as a disk or a permission does.
struct Refusing final : FileSystem {
  Refusing(Path refused, int refusal) : path(std::move(refused)), code(refusal) {}
  Type type(const Path& at) override {
    if (at.parent_path() == path) refuse(at);
    return FileSystem::type(at);
  }
  std::vector<Item> list(const Path& at) override {
    if (at == path) refuse(at);
    return FileSystem::list(at);
  }
  std::string read(const Path& at, std::uint64_t most) override {
    if (at.parent_path() == path) refuse(at);
    return FileSystem::read(at, most);
  }
  void refuse(const Path& at) const {
    throw FileError("made to fail", at, std::error_code(code, std::generic_category()));
  }
  Path path;
  int code;
};

TEST_CASE("A folder that cannot be listed is an error and never an empty one") {
  const Scratch scratch;
  write(scratch.path, 1, real_files(), "sub/ba1");
  for (const int code : {EIO, ESTALE, EMFILE}) {
    for (const fs::path& at : {scratch.path, scratch.path / "sub", scratch.path / "sub/ba1"}) {
      CAPTURE(at);
      Refusing files(at, code);
      CHECK_THROWS_AS(list_checkpoints(scratch.path, files), FileError);
      CHECK_THROWS_AS(find_latest(
                          scratch.path, "", [](const Manifest&) { return true; }, files),
                      FileError);
    }
  }
  Refusing files(scratch.path, EACCES);
  CHECK_THROWS_AS(list_checkpoints(scratch.path, files), FileError);
  CHECK(list_checkpoints(scratch.folder / "nothing").empty());
}

TEST_CASE("A folder without permission to look into it, as lost+found of a disk, is stepped over") {
  const Scratch scratch;
  write(scratch.path, 1, real_files(), "ba1");
  fs::create_directory(scratch.path / "lost+found");
  Refusing files(scratch.path / "lost+found", EACCES);
  CHECK(list_checkpoints(scratch.path, files).size() == 1);
  CHECK(paths_below(scratch.path, Below::Kind::UNREADABLE, files).size() == 1);
  CHECK_FALSE(find_conflict(scratch.path, "ba{batch}", "r", Timestamp(), "run", files));
  CHECK(find_latest(
      scratch.path, "", [](const Manifest&) { return true; }, files));
}

TEST_CASE(
    "An unreadable folder with a name that the run would give is a conflict, and says that it could not be read") {
  const Scratch scratch;
  write(scratch.path, 1, real_files(), "ba1");
  Refusing files(scratch.path / "ba1", EACCES);
  const auto conflict = find_conflict(scratch.path, "ba{batch}", "r", Timestamp(), "run", files);
  REQUIRE(conflict);
  CHECK_FALSE(conflict->foreign);
  CHECK(conflict->reason.find("could not be read") != std::string::npos);
}

TEST_CASE("Formats with {{ and }} have conflicts, too") {
  const Scratch scratch;
  write(scratch.path, 5, real_files(), "{5}");
  Timestamp now;
  const auto conflict = [&](const std::string& run) {
    return find_conflict(scratch.path, "{{{batch}}}", "r", now, run).has_value();
  };
  CHECK(conflict("other"));
  CHECK_FALSE(conflict("run"));
  now.batch = 5;
  CHECK_FALSE(conflict("other"));
}

TEST_CASE("If the only checkpoints are damaged or of a newer version, resuming is an error that says what to do") {
  struct Row {
    const char* what;
    std::function<void(const fs::path&)> change;
    const char* text;
  };
  const std::vector<Row> rows = {
      {"damaged manifest", [](const fs::path& at) { std::ofstream(at / "ba1/manifest.json") << "{"; }, "autoresume"},
      {"empty manifest", [](const fs::path& at) { std::ofstream(at / "ba1/manifest.json"); }, "autoresume"},
      {"a file is missing", [](const fs::path& at) { fs::remove(at / "ba1/model.safetensors"); },
       "files are missing, or their sizes differ"},
      {"newer version", [](const fs::path& at) { write_newer(at, "ba1"); }, "use a newer libcomposer"},
      {"newer version, no link",
       [](const fs::path& at) {
         write_newer(at, "ba1");
         fs::remove(at / "latest");
       },
       "use a newer libcomposer"},
      {"newer version, and an older checkpoint",
       [](const fs::path& at) {
         write_newer(at, "ba9");
         fs::remove(at / "latest");
       },
       "use a newer libcomposer"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const Scratch scratch;
    write(scratch.path, 1, real_files(), "ba1");
    row.change(scratch.path);
    CHECK_THROWS_WITH_AS(find_latest(scratch.path, "latest"), doctest::Contains(row.text), CheckpointError);
  }
}

TEST_CASE("While others make and remove folders beside them, the newest checkpoint is found every time") {
  const Scratch scratch;
  for (int batch = 1; batch <= 5; ++batch) write(scratch.path, batch, real_files(), join("ba", batch));
  std::atomic<bool> stop = false;
  std::thread other([&] {
    for (int i = 0; !stop; ++i) {
      std::error_code ignored;
      const fs::path path = scratch.path / join("plots", i % 50);
      fs::create_directories(path / "a", ignored);
      fs::remove_all(path, ignored);
    }
  });
  int found = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto newest = find_latest(scratch.path, "");
    found += newest && newest->manifest.time.batch == 5 ? 1 : 0;
  }
  stop = true;
  other.join();
  CHECK(found == 2000);
}

TEST_CASE("The newest that fits is found, though the link leads to one that does not") {
  const Scratch scratch;
  write(scratch.path, 1, real_files(), "ba1");
  CheckpointFolder(scratch.path, "other", real_files())
      .write(test::manifest_of(2, "ba2", "other"), test::files_of(2), "latest");
  const test::Warnings warnings;
  const auto found = find_latest(scratch.path, "latest", [](const Manifest& m) { return m.run_id == "run"; });
  REQUIRE(found);
  CHECK(found->manifest.time.batch == 1);
  CHECK(warnings.texts.empty());
  CHECK_FALSE(find_latest(scratch.path, "latest", [](const Manifest& m) { return m.run_id == "third"; }));
}

TEST_CASE("Names that leave the folder, are reserved, too long or the link's are rejected") {
  const std::string longest(251, 'n');
  for (const std::string& good : {std::string("ep1-ba2"), std::string("a/b/c"), longest, std::string("latest2")})
    CHECK_NOTHROW(check_name(good, "latest"));
  for (const std::string& bad :
       {std::string(), std::string("/abs"), std::string(".."), std::string("../x"), std::string("a/../b"),
        std::string("."), std::string("a//b/"), std::string(".tmp-x-1-2"), std::string("a/.tmp-x"), longest + "n",
        std::string("latest"), std::string("latest/a"), std::string("a\0b", 3)}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(check_name(bad, "latest"), ConfigError);
  }
  CHECK_THROWS_AS(check_name("a", "a/latest"), ConfigError);
}

TEST_CASE(
    "Of two checkpoints the one with the smaller number is older, and without numbers the one of the earlier batch") {
  struct Row {
    std::int64_t number, batch, epoch;
  };
  const std::vector<Row> oldest_first = {{0, 3, 0}, {0, 9, 1}, {0, 9, 2}, {1, 20, 5}, {2, 1, 0}, {3, 2, 0}, {4, 2, 1}};
  const auto manifest = [](const Row& row) {
    Manifest m;
    m.number = row.number;
    m.time.batch = row.batch;
    m.time.epoch = row.epoch;
    return m;
  };
  for (std::size_t i = 0; i < oldest_first.size(); ++i)
    for (std::size_t k = 0; k < oldest_first.size(); ++k)
      CHECK(is_older(manifest(oldest_first[i]), manifest(oldest_first[k])) == (i < k));
}

}  // namespace
}  // namespace composer::saving::listing_test
