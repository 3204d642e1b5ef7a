#include "composer/util/temporary.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::util::temporary_test {
namespace {

namespace fs = std::filesystem;

TEST_CASE("A temporary file or folder is new, this user's alone, and gone with its contents at the end of the scope") {
  for (const auto kind : {TemporaryKind::FILE, TemporaryKind::FOLDER}) {
    fs::path path;
    {
      const Temporary one(kind, "composer-test-"), other(kind, "composer-test-");
      path = one.path();
      CHECK(path != other.path());
      CHECK(path.parent_path() == fs::temp_directory_path());
      CHECK(path.filename().string().starts_with("composer-test-"));
      CHECK(fs::is_directory(path) == (kind == TemporaryKind::FOLDER));
      CHECK(fs::is_empty(path));
      CHECK((fs::status(path).permissions() & (fs::perms::group_all | fs::perms::others_all)) == fs::perms::none);
      std::ofstream(kind == TemporaryKind::FOLDER ? path / "inside" : path) << "text";
    }
    CHECK_FALSE(fs::exists(path));
  }
}

TEST_CASE("A temporary folder that is to be kept stays") {
  fs::path path;
  {
    Temporary folder(TemporaryKind::FOLDER, "composer-test-");
    path = folder.path();
    folder.keep();
  }
  CHECK(fs::remove(path));
}

TEST_CASE("Where none can be made, the error names the place and the reason") {
  const test::Folder folder;
  std::string said;
  try {
    make_temporary(TemporaryKind::FILE, folder / "missing", "x-");
  } catch (const Error& error) {
    said = error.what();
  }
  CHECK(said == (folder / "missing").string() + ": no file can be made there: No such file or directory");
}

}  // namespace
}  // namespace composer::util::temporary_test
