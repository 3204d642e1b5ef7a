#include "composer/checkpoint/saver.h"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include <doctest/doctest.h>

#include "composer/core/error.h"
#include "tests/support/folder.h"

namespace composer::saving {
namespace {

using namespace std::chrono_literals;

// Refuses what it is told to.
struct Refusing final : FileSystem {
  int create(const Path& path) override {
    if (path.filename() == Manifest::kFileName) ++saves;
    if (path.filename() == Manifest::kFileName && refused_saves > 0) {
      --refused_saves;
      throw FileError("made to fail", path, std::error_code(ENOSPC, std::generic_category()));
    }
    return FileSystem::create(path);
  }
  void rename(const Path& from, const Path& to) override {
    if (refuses_removal && to.filename().string().starts_with(".tmp-"))
      throw FileError("made to fail", from, std::error_code(EIO, std::generic_category()));
    FileSystem::rename(from, to);
  }
  std::atomic<int> saves = 0, refused_saves = 0;
  std::atomic<bool> refuses_removal = false;
};

StateDict state_of(double value) {
  StateDict model, state;
  model["weight"] = at::full({3}, value);
  state["model"] = model;
  state["number"] = value;
  return state;
}

void save(Saver& saver, int batch, std::map<std::string, double> metrics = {}) {
  Manifest manifest;
  manifest.name = join("ba", batch);
  manifest.time.batch = batch;
  saver.plan(manifest.name, metrics);
  saver.save(manifest, state_of(batch));
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const Found& found : list_checkpoints(folder)) names.push_back(found.path.filename());
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("what is saved is what the tensors were when save() returned, on another thread and on this one") {
  for (const bool asynchronous : {true, false}) {
    const test::Folder folder;
    Saver saver({.folder = folder.path(), .asynchronous = asynchronous});
    Manifest manifest;
    manifest.name = "ba1";
    const StateDict state = state_of(1);
    saver.plan("ba1", {});
    saver.save(manifest, state);
    std::get<at::Tensor>(*std::get<StateDict>(*state.find("model")).find("weight")).fill_(2);
    saver.wait();
    const StateDict loaded = load(open_checkpoint(folder / "ba1"));
    CHECK(std::get<at::Tensor>(*std::get<StateDict>(*loaded.find("model")).find("weight")).eq(1).all().item<bool>());
    CHECK(std::get<double>(*loaded.find("number")) == 1);
  }
}

TEST_CASE("a file of the same checkpoint that is not the one that the manifest means is refused") {
  const test::Folder folder;
  Saver saver({.folder = folder.path(), .asynchronous = false});
  save(saver, 1);
  const Found found = open_checkpoint(folder / "ba1");
  REQUIRE(found.manifest.version == 2);
  Found other = found;
  other.manifest.files.front().checksum = "xxh3:0123456789abcdef";
  CHECK_NOTHROW(load(found));
  CHECK_THROWS_AS(load(other), CheckpointError);
}

TEST_CASE("under CONTINUE, what was due for deletion at a write that failed goes with the next") {
  for (const bool asynchronous : {true, false}) {
    CAPTURE(asynchronous);
    const test::Folder folder;
    auto files = std::make_shared<Refusing>();
    Saver saver({.folder = folder.path(), .keep = 2, .on_failure = OnFailure::CONTINUE, .asynchronous = asynchronous},
                files);
    for (const int batch : {1, 2}) save(saver, batch);
    saver.wait();
    files->refused_saves = 2;
    for (const int batch : {3, 4}) save(saver, batch);
    saver.wait();
    CHECK(names_in(folder.path()) == Names{"ba1", "ba2"});
    save(saver, 5);
    saver.wait();
    CHECK(names_in(folder.path()) == Names{"ba2", "ba5"});
    CHECK(saver.saved() == Names{"ba2", "ba5"});
    CHECK(open_checkpoint(folder / "ba5").manifest.parent == "ba2");
  }
}

TEST_CASE("under CONTINUE, the best is still among those that are kept after a write that failed") {
  const test::Folder folder;
  auto files = std::make_shared<Refusing>();
  Saver saver({.folder = folder.path(),
               .keep = 2,
               .best = Best{.metric = "eval/a"},
               .on_failure = OnFailure::CONTINUE,
               .asynchronous = false},
              files);
  save(saver, 1, {{"eval/a", 0.5}});
  save(saver, 2, {{"eval/a", 0.9}});
  files->refused_saves = 1;
  save(saver, 3, {{"eval/a", 1.0}});
  save(saver, 4, {{"eval/a", 0.1}});
  saver.wait();
  CHECK(names_in(folder.path()) == Names{"ba2", "ba4"});
}

TEST_CASE("a checkpoint that the disk does not let go is deleted later, and the new one is there") {
  const test::Folder folder;
  auto files = std::make_shared<Refusing>();
  Saver saver({.folder = folder.path(), .keep = 1, .asynchronous = false}, files);
  save(saver, 1);
  files->refuses_removal = true;
  save(saver, 2);
  saver.wait();
  CHECK(names_in(folder.path()) == Names{"ba1", "ba2"});
  files->refuses_removal = false;
  save(saver, 3);
  saver.wait();
  CHECK(names_in(folder.path()) == Names{"ba3"});
}

TEST_CASE("RETRY gives up at once when there is no time left, and does not wait where waiting would take it") {
  const auto attempts = [](std::chrono::steady_clock::duration left, int refused) {
    const test::Folder folder;
    auto files = std::make_shared<Refusing>();
    Saver saver({.folder = folder.path(),
                 .on_failure = OnFailure::RETRY,
                 .asynchronous = false,
                 .time_left = [=] { return std::optional(left); }},
                files);
    files->refused_saves = refused;
    bool thrown = false;
    try {
      save(saver, 1);
    } catch (const CheckpointError&) {
      thrown = true;
    }
    CHECK(thrown == !std::filesystem::exists(folder / "ba1"));
    return files->saves.load();
  };
  CHECK(attempts(0s, 100) == 1);
  CHECK(attempts(-1s, 100) == 1);
  CHECK(attempts(900ms, 100) == 4);
  CHECK(attempts(900ms, 2) == 3);
}

TEST_CASE("a write that takes longer than is left is not tried again") {
  const test::Folder folder;
  auto files = std::make_shared<Refusing>();
  Saver* own = nullptr;
  Saver saver({.folder = folder.path(),
               .on_failure = OnFailure::RETRY,
               .asynchronous = false,
               .time_left =
                   [&] {
                     return std::optional(
                         std::chrono::duration_cast<std::chrono::steady_clock::duration>(own->last_write_time() * 0.5));
                   }},
              files);
  own = &saver;
  CHECK(saver.last_write_time() == 0s);
  save(saver, 1);
  CHECK(saver.last_write_time() > 0s);
  files->saves = 0;
  files->refused_saves = 1;
  CHECK_THROWS_AS(save(saver, 2), CheckpointError);
  CHECK(files->saves == 1);
}

// Writes only while the gate is open.
struct Gated final : FileSystem {
  int create(const Path& path) override {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return open > 0; });
    if (path.filename() == Manifest::kFileName) --open;
    return FileSystem::create(path);
  }
  void let(int saves) {
    const std::lock_guard lock(mutex);
    open += saves;
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  int open = 0;
};

TEST_CASE(
    "while a slow disk writes one checkpoint, no second one is taken: when save() returns, those before are there") {
  const test::Folder folder;
  auto files = std::make_shared<Gated>();
  Saver saver({.folder = folder.path()}, files);
  save(saver, 1);
  CHECK(names_in(folder.path()).empty());
  std::thread disk([&] { files->let(1); });
  save(saver, 2);
  disk.join();
  CHECK(names_in(folder.path()) == Names{"ba1"});
  files->let(1);
  saver.wait();
  CHECK(names_in(folder.path()) == Names{"ba1", "ba2"});
}

TEST_CASE("the first save removes what a dead process has left, and adopting a checkpoint does") {
  const test::Folder folder;
  const auto leave = [&] { std::filesystem::create_directories(folder / ".tmp-dead-1-1" / "inside"); };
  leave();
  Saver saver({.folder = folder.path(), .asynchronous = false});
  CHECK(std::filesystem::exists(folder / ".tmp-dead-1-1"));
  save(saver, 1);
  CHECK_FALSE(std::filesystem::exists(folder / ".tmp-dead-1-1"));
  leave();
  Saver later({.folder = folder.path()});
  later.adopt(open_checkpoint(folder / "ba1").manifest);
  CHECK_FALSE(std::filesystem::exists(folder / ".tmp-dead-1-1"));
}

}  // namespace
}  // namespace composer::saving
