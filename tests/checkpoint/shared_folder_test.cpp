// Two runs in one folder: neither removes nor replaces what the other has written.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/callbacks/checkpoint_saver.h"
#include "composer/core/error.h"
#include "tests/checkpoint/checkpoints.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/system_calls.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::saving::shared_folder_test {
namespace {

namespace fs = std::filesystem;
using test::write;

constexpr const char* kTaken = "already exists and was not written by this run";

// Another run writes this checkpoint.
void write_as_other(const fs::path& path, int batch, const std::string& name, bool overwrite = false) {
  CheckpointFolder(path, "other", real_files())
      .write(test::manifest_of(batch, name, "other"), test::files_of(batch), "", overwrite);
}

void check_others(const fs::path& path, int batch) {
  const Found found = open_checkpoint(path);
  CHECK(found.manifest.run_id == "other");
  CHECK(found.manifest.time.batch == batch);
  CHECK(test::is_whole(found));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

// Does something right before the first call that takes something away from that path.
struct Beforehand final : FileSystem {
  void rename(const Path& from, const Path& to) override {
    if (from == path) happen();
    FileSystem::rename(from, to);
  }
  bool exchange(const Path& a, const Path& b) override {
    if (b == path && can_exchange) happen();
    return can_exchange && FileSystem::exchange(a, b);
  }
  void happen() {
    if (const auto now = std::exchange(what, {})) now();
  }
  Path path;
  std::function<void()> what;
  bool can_exchange = true;
};

TEST_CASE("A checkpoint that another run puts there while this one is being written stays, and this one is an error") {
  const std::vector<std::pair<std::string, bool>> rows = {{"ba1", false}, {"sub/ba1", false}, {"ba1", true}};
  for (const auto& [name, is_plain] : rows) {
    CAPTURE(name);
    std::optional<test::PlainRenames> plain;
    if (is_plain) plain.emplace();
    const test::Folder folder;
    std::vector<NewFile> files = test::files_of(1);
    files.push_back({"last", [&, name = name](const PlacedSink&) {
                       write_as_other(folder.path(), 2, name);
                       return std::string();
                     }});
    CheckpointFolder mine(folder.path(), "run", real_files());
    CHECK_THROWS_WITH_AS(mine.write(test::manifest_of(1, name), files, "latest"), doctest::Contains(kTaken),
                         CheckpointError);
    check_others(folder / name, 2);
    CHECK(names_in(folder.path()).size() == 1);
  }
}

TEST_CASE("What another run has put in the place of an own checkpoint goes back when it comes out of the exchange") {
  for (const bool can_exchange : {true, false}) {
    CAPTURE(can_exchange);
    const test::Folder folder;
    write(folder.path(), 1, real_files(), "ba1");
    Beforehand files;
    files.path = folder / "ba1";
    files.what = [&] { write_as_other(folder.path(), 2, "ba1", /*overwrite=*/true); };
    files.can_exchange = can_exchange;
    CHECK_THROWS_WITH_AS(write(folder.path(), 3, files, "ba1"), doctest::Contains(kTaken), CheckpointError);
    check_others(folder / "ba1", 2);
    CHECK(names_in(folder.path()) == std::vector<std::string>{"ba1", "latest"});
  }
}

TEST_CASE("What another run has put in the place of a checkpoint that is to be deleted stays") {
  const test::Folder folder;
  write(folder.path(), 1, real_files(), "ba1");
  Beforehand files;
  files.path = folder / "ba1";
  files.what = [&] { write_as_other(folder.path(), 2, "ba1", /*overwrite=*/true); };
  const test::Warnings warnings;
  CHECK(CheckpointFolder(folder.path(), "run", files).remove({"ba1"}).empty());
  CHECK(warnings.say("ba1 is not deleted"));
  check_others(folder / "ba1", 2);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"ba1", "latest"});
}

TEST_CASE("A file system that cannot rename to a free name in one step replaces neither files nor folders") {
  for (const bool is_plain : {false, true}) {
    CAPTURE(is_plain);
    const test::Folder folder;
    std::optional<test::PlainRenames> plain;
    if (is_plain) plain.emplace();
    FileSystem& files = real_files();
    fs::create_directories(folder / "full/inside");
    fs::create_directories(folder / "new/of me");
    std::ofstream(folder / "file") << "x";
    fs::create_symlink("nowhere", folder / "link");
    for (const char* taken : {"full", "file", "link"})
      CHECK_FALSE(files.rename_if_free(folder / "new", folder / taken));
    CHECK(names_in(folder.path()) == std::vector<std::string>{"file", "full", "link", "new"});
    CHECK(fs::exists(folder / "full/inside"));
    CHECK_THROWS_AS(files.rename_if_free(folder / "new", folder / "missing/new"), FileError);
    CHECK_THROWS_AS(files.rename_if_free(folder / "missing", folder / "free"), FileError);
    CHECK(files.rename_if_free(folder / "new", folder / "free"));
    CHECK(fs::exists(folder / "free/of me"));
  }
}

TEST_CASE("A CheckpointSaver in the save_folder with the trainer's names is an error, and replaces nothing") {
  for (const bool async : {true, false}) {
    CAPTURE(async);
    const test::Folder folder;
    TrainerOptions options = test::tiny_options();
    options.save_folder = folder / "ck";
    options.save_async = async;
    options.callbacks = {
        callbacks::CheckpointSaver({.folder = folder / "ck", .latest_filename = "", .weights_only = true})};
    const std::string said = test::error_of([&] { Trainer(std::move(options)).fit(); });
    CAPTURE(said);
    CHECK(said.find("is the trainer's save_folder") != std::string::npos);
    CHECK(list_checkpoints(folder / "ck").empty());
  }
}

TEST_CASE("A file or folder under the link's name is an error at the start of fit() that names it, and stays") {
  for (const bool is_folder : {false, true}) {
    const test::Folder folder;
    TrainerOptions options = test::tiny_options();
    options.save_folder = folder / "ck";
    fs::create_directories(folder / "ck");
    if (is_folder)
      fs::create_directories(folder / "ck/latest/inside");
    else
      std::ofstream(folder / "ck/latest") << "mine";
    Trainer trainer(std::move(options));
    const std::string said = test::error_of([&] { trainer.fit(); });
    CAPTURE(said);
    CHECK(said.find("ck/latest") != std::string::npos);
    CHECK(said.find("save_latest_filename") != std::string::npos);
    CHECK(trainer.state().timestamp.batch == 0);
    CHECK(fs::exists(folder / (is_folder ? "ck/latest/inside" : "ck/latest")));
    CHECK_THROWS_AS(write(folder / "ck", 1, real_files(), "ba1"), CheckpointError);
    CHECK(names_in(folder / "ck") == std::vector<std::string>{"latest"});
  }
}

// As `cp -rL` and object stores do it.
void copy_with_links_followed(const fs::path& from, const fs::path& to) {
  fs::copy(from, to, fs::copy_options::recursive);
}

TrainerOptions options_of(const fs::path& folder, OptionalTime max_duration) {
  TrainerOptions options = test::tiny_options();
  options.save_folder = folder;
  options.max_duration = max_duration;
  return options;
}

TEST_CASE("A save folder that was copied with its links followed is resumed from, and has a link again") {
  const test::Folder folder;
  Trainer(options_of(folder / "ck", "2ep")).fit();
  copy_with_links_followed(folder / "ck", folder / "copy");
  REQUIRE(fs::symlink_status(folder / "copy/latest").type() == fs::file_type::directory);
  Trainer resumed(options_of(folder / "copy", "3ep"));
  CHECK_NOTHROW(resumed.fit());
  CHECK(resumed.state().timestamp.batch == 12);
  CHECK(fs::is_symlink(folder / "copy/latest"));
  CHECK(names_in(folder / "copy") == std::vector<std::string>{"ep1-ba4", "ep2-ba8", "ep3-ba12", "latest"});
}

TEST_CASE("A copy under the link's name that is the only one of its checkpoint gets its own name") {
  for (const bool damaged : {false, true}) {
    const test::Folder folder;
    Trainer(options_of(folder / "ck", "2ep")).fit();
    copy_with_links_followed(folder / "ck", folder / "copy");
    if (damaged)
      fs::remove(folder / "copy/ep2-ba8/model.safetensors");
    else
      fs::remove_all(folder / "copy/ep2-ba8");
    Trainer resumed(options_of(folder / "copy", "3ep"));
    const std::string said = test::error_of([&] { resumed.fit(); });
    CAPTURE(said);
    CHECK((said == "no error") == !damaged);
    const fs::path kept = folder / (damaged ? "copy/latest" : "copy/ep2-ba8");
    CHECK(open_checkpoint(kept).manifest.name == "ep2-ba8");
    CHECK(fs::exists(kept / "model.safetensors"));
    CHECK(fs::is_symlink(folder / "copy/latest") == !damaged);
  }
}

TEST_CASE("A run that was trained elsewhere since its Trainer was made is an error that says so, not trained again") {
  const test::Folder folder;
  Trainer(options_of(folder / "ck", "1ep")).fit();
  Trainer stale(options_of(folder / "ck", "3ep"));
  Trainer(options_of(folder / "ck", "2ep")).fit();
  const fs::file_time_type written = fs::last_write_time(folder / "ck/ep2-ba8/manifest.json");
  const std::string said = test::error_of([&] { stale.fit(); });
  CAPTURE(said);
  CHECK(said.find("ep1-ba4") != std::string::npos);
  CHECK(said.find("ep2-ba8") != std::string::npos);
  CHECK(said.find("make the Trainer again") != std::string::npos);
  CHECK(stale.state().timestamp.batch == 4);
  CHECK(fs::last_write_time(folder / "ck/ep2-ba8/manifest.json") == written);
  Trainer again(options_of(folder / "ck", "3ep"));  // the lock is free
  CHECK_NOTHROW(again.fit());
}

TEST_CASE("A run whose checkpoint was removed since its Trainer was made is an error that says so") {
  const test::Folder folder;
  Trainer(options_of(folder / "ck", "1ep")).fit();
  Trainer stale(options_of(folder / "ck", "2ep"));
  fs::remove_all(folder / "ck/ep1-ba4");
  const std::string said = test::error_of([&] { stale.fit(); });
  CAPTURE(said);
  CHECK(said.find("ep1-ba4") != std::string::npos);
  CHECK(said.find("make the Trainer again") != std::string::npos);
}

TEST_CASE("A Trainer that is only made changes nothing in its save folder; its fit removes what a dead process left") {
  const test::Folder folder;
  Trainer(options_of(folder / "ck", "1ep")).fit();
  const std::string left = join(".tmp-", open_checkpoint(folder / "ck/latest").manifest.run_id, "-1-1");
  fs::create_directory_symlink("ep1-ba4", folder / "ck" / left);  // as a live process has it for a moment, too
  Trainer resumed(options_of(folder / "ck", "2ep"));
  REQUIRE_FALSE(resumed.resumed_from().empty());
  CHECK(fs::is_symlink(folder / "ck" / left));
  resumed.fit();
  CHECK_FALSE(fs::is_symlink(folder / "ck" / left));
}

TEST_CASE("A resumed Trainer that has written a checkpoint by hand before its fit trains on") {
  const test::Folder folder;
  Trainer(options_of(folder / "ck", "1ep")).fit();
  Trainer resumed(options_of(folder / "ck", "2ep"));
  resumed.save_checkpoint("mine");
  CHECK_NOTHROW(resumed.fit());
  CHECK_NOTHROW(resumed.fit("1ep"));
  CHECK(resumed.state().timestamp.batch == 12);
}

TEST_CASE("A run goes on beside a checkpoint whose manifest is damaged, and keeps what is left of it") {
  const test::Folder folder;
  const auto options = [&](const Time& until) {
    TrainerOptions made = test::tiny_options();
    made.save_folder = folder / "ck";
    made.save_interval = "1ba";
    made.max_duration = until;
    return made;
  };
  Trainer(options("1ep")).fit();
  const std::filesystem::path newest = std::filesystem::canonical(folder / "ck/latest");
  std::fstream file(newest / Manifest::kFileName, std::ios::in | std::ios::out);
  file.seekp(20);
  file.put('#');
  file.close();
  const test::Warnings warnings;
  Trainer trainer(options("2ep"));
  CHECK(trainer.state().timestamp.batch == 3);
  trainer.fit();
  CHECK(trainer.state().timestamp.epoch == 2);
  CHECK(warnings.say(".damaged from now on"));
  CHECK(std::filesystem::exists(newest.string() + ".damaged/model.safetensors"));
  CHECK_FALSE(saving::open_checkpoint(newest).manifest.id.empty());  // written again
  const test::Warnings later;
  CHECK(Trainer(options("2ep")).state().timestamp.batch == 8);
  CHECK_FALSE(later.say("damaged"));
}

}  // namespace
}  // namespace composer::saving::shared_folder_test
