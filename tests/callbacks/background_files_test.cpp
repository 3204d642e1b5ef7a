// Files that callbacks write: by a thread of their own, whole or not at all, and not over those of another run.
#include "composer/callbacks/background_files.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "composer/callbacks/callback_files.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/util/new_file.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"
#include "tests/support/warnings.h"

namespace composer::background_files_test {
namespace {

namespace fs = std::filesystem;
using callbacks::BackgroundFiles;
using test::Folder;
using test::text_of;
using test::Warnings;

std::string lost(const std::string& path) { return "Test: " + path + " is lost"; }

TEST_CASE("BackgroundFiles writes in order, by another thread, and has written all after wait()") {
  std::vector<int> written;
  std::vector<std::thread::id> threads;
  BackgroundFiles files(2, lost);
  for (int i = 0; i < 20; ++i)
    files.send("a", [&, i](const fs::path&) {
      written.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  files.wait();
  REQUIRE(written.size() == 20);
  for (int i = 0; i < 20; ++i) CHECK(written[static_cast<std::size_t>(i)] == i);
  for (const std::thread::id thread : threads) CHECK(thread != std::this_thread::get_id());
}

TEST_CASE("BackgroundFiles warns of a failure once, with the path that was chosen last, and writes the next file") {
  const Folder folder;
  const Warnings warnings;
  BackgroundFiles files(2, lost);
  files.send("a", [](fs::path& path) {
    path = "a-2";
    throw std::runtime_error("no room");
  });
  files.wait();
  CHECK(warnings.texts == std::vector<std::string>{"Test: a-2 is lost: no room"});
  files.send(folder / "b", [](const fs::path& path) { util::write_whole_file(path, "text"); });
  files.wait();
  CHECK(warnings.texts.size() == 1);
  CHECK(text_of(folder / "b") == "text");
}

TEST_CASE("What BackgroundFiles was sent is written before it is destroyed") {
  const Folder folder;
  {
    BackgroundFiles files(8, lost);
    for (const char* name : {"a", "b", "c"})
      files.send(folder / name, [](const fs::path& path) { util::write_whole_file(path, "text"); });
  }
  for (const char* name : {"a", "b", "c"}) CHECK(text_of(folder / name) == "text");
}

TEST_CASE("Files of another run are refused by their suffix, and those of this run are not") {
  const Folder folder;
  State state;
  const auto check = [&](const fs::path& in) {
    callbacks::refuse_files_of_another_run("Test", in, ".json", "traces", state);
  };
  check(folder / "none");
  check(folder.path());
  std::ofstream(folder / "a.txt") << "x";
  check(folder.path());
  std::ofstream(folder / "b.json") << "x";
  CHECK_THROWS_WITH_AS(
      check(folder.path()),
      doctest::Contains("has traces of another run, such as b.json; choose another folder, or set overwrite"),
      ConfigError);
  state.resumes = true;
  check(folder.path());
}

TEST_CASE("Names of files are refused if a brace has no other, or a number is to be written in no way that there is") {
  const auto with = [](const char* folder, const char* filename) {
    callbacks::check_file_names("Plotter", {{"folder", folder}, {"filename", filename}});
  };
  with("", "{run_name}/ep{epoch:04}-rank{rank}");
  CHECK_THROWS_WITH_AS(with("{run_name", "a"), doctest::Contains("Plotter: folder: "), ConfigError);
  CHECK_THROWS_WITH_AS(with("a", "{epoch:?}"), doctest::Contains("Plotter: filename: "), ConfigError);
}

}  // namespace
}  // namespace composer::background_files_test
