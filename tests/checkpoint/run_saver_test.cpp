// Which batches a run saves: after time was reset, and after a checkpoint could not be written.
#include <filesystem>
#include <fstream>
#include <string>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/run_lock.h"
#include "composer/core/error.h"
#include "composer/core/on.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/sandbox.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::run_saver_test {
namespace {

namespace fs = std::filesystem;

TEST_CASE("After time was reset every checkpoint that is due is written, from the first on") {
  const Folder folder;
  TrainerOptions options = tiny_options();
  options.max_duration = "8ba";
  options.save_folder = folder / "ck";
  options.save_interval = "1ba";
  options.save_num_checkpoints_to_keep = 100;
  options.save_overwrite = true;
  Trainer trainer(std::move(options));
  trainer.fit();
  for (const std::string& path : trainer.saved_checkpoints()) fs::remove_all(path);
  trainer.fit({.duration = "3ba", .reset_time = true});
  for (int batch = 1; batch <= 3; ++batch) {
    CAPTURE(batch);
    CHECK(fs::exists(folder / join("ck/ep0-ba", batch)));
  }
}

TEST_CASE("A save folder that is renamed or removed while a run trains is made again, locked, and told") {
  for (const bool removed : {false, true}) {
    CAPTURE(removed);
    const Folder folder;
    const fs::path path = folder / "ck";
    TrainerOptions options = tiny_options();
    options.save_folder = path;
    options.save_interval = "1ba";
    options.save_async = false;  // nothing is being written when the folder goes
    options.callbacks = {on(Event::BATCH_START, [&](const State& state) {
      if (state.timestamp.batch != 2) return;
      removed ? void(fs::remove_all(path)) : fs::rename(path, folder / "moved");
    })};
    const Warnings warnings;
    Trainer trainer(std::move(options));
    trainer.begin();
    while (trainer.state().timestamp.batch < 3 && trainer.step()) {
    }
    trainer.step();
    CHECK(warnings.say("was renamed, or it or its lock was removed"));
    CHECK_THROWS_WITH_AS(saving::RunLock(path, "tiny"), doctest::Contains("is in use"), ConfigError);
    while (trainer.step()) {
    }
    trainer.end();
    CHECK(fs::exists(path / "ep0-ba4"));
  }
}

TEST_CASE("A relative save folder is that of the working directory when the trainer was made") {
  const Folder folder;
  const Sandbox sandbox;
  TrainerOptions options = tiny_options();
  options.save_folder = "ck";
  options.save_interval = "1ba";
  options.callbacks = {on(Event::BATCH_START, [&](const State& state) {
    if (state.timestamp.batch == 2) fs::current_path(folder.path());
  })};
  const fs::path before = fs::current_path();
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(fs::exists(before / "ck/ep0-ba4"));
  CHECK(trainer.saved_checkpoints().back() == (before / "ck/ep0-ba4").string());
  CHECK(fs::is_empty(folder.path()));
  fs::current_path(before);
}

TEST_CASE("A checkpoint that was not written is written by the next fit, and not taken for one") {
  for (const bool asynchronous : {true, false}) {
    CAPTURE(asynchronous);
    const Folder folder;
    TrainerOptions options = tiny_options();
    options.save_folder = folder / "ck";
    options.save_interval = "1ba";
    options.save_async = asynchronous;
    options.save_filename = "{epoch}/ba{batch}";
    Trainer trainer(std::move(options));
    trainer.begin();
    REQUIRE(trainer.step());
    trainer.step();
    // a file is where the next epoch's folder is to be
    while (trainer.state().timestamp.epoch == 0 && trainer.step()) {
    }
    trainer.end();
    CHECK(fs::exists(folder / "ck/0/ba4"));
    std::ofstream(folder / "ck/1") << "x";
    CHECK_THROWS_AS(trainer.fit("1ba"), Error);
    CHECK(trainer.state().timestamp.batch == 5);
    fs::remove(folder / "ck/1");
    trainer.fit("1ba");
    CHECK(fs::exists(folder / "ck/1/ba6"));
    CHECK(trainer.saved_checkpoints().back() == (folder / "ck/1/ba6").string());
  }
}

}  // namespace
}  // namespace composer::test::run_saver_test
