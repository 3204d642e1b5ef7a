#include "composer/callbacks/memory_snapshot.h"

#include <fstream>
#include <iterator>

#include "composer/core/error.h"
#include "composer/device/allocator_history.h"
#include "tests/callbacks/fake_history.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/folder.h"
#include "tests/support/warnings.h"

namespace composer::memory_snapshot_test {

using callbacks::MemorySnapshot;
using test::FakeHistory;
using test::HistoryCalls;

namespace {

struct Uploads final : LoggerDestination {
  void upload_file(const LogFile& file, const State&) override { files.push_back(file); }
  std::vector<LogFile> files;
};

struct SnapshotRun : test::FakeRun {
  SnapshotRun() : uploading(state, {&uploads}) { state.run_name = "night"; }
  void train(MemorySnapshot& snapshot, int batches, std::int64_t samples = 4) {
    for (int i = 0; i < batches; ++i) {
      snapshot.batch_start(state, uploading);
      state.timestamp = state.timestamp.to_next_batch(samples, 0, Seconds(1));
      snapshot.batch_end(state, uploading);
    }
  }
  test::Folder folder;
  HistoryCalls calls;
  Uploads uploads;
  Logger uploading;
  std::unique_ptr<AllocatorHistory> source() { return std::make_unique<FakeHistory>(calls); }
};

}  // namespace

TEST_CASE("A history that several use begins with the first and ends with the last of them") {
  HistoryCalls calls;
  using Names = std::vector<std::string>;
  SharedHistory all(std::make_unique<FakeHistory>(calls));
  const auto observer = all.user(), snapshot = all.user();
  observer->start(5);
  snapshot->start(3);
  snapshot->start(3);
  snapshot->stop();
  snapshot->stop();
  CHECK(calls.names == Names{"start 5"});
  snapshot->start(7);  // which is longer
  observer->stop();
  CHECK(snapshot->snapshot() == "pickled");
  CHECK(calls.names == Names{"start 5", "start 7", "snapshot"});
  snapshot->stop();
  CHECK(calls.names == Names{"start 5", "start 7", "snapshot", "stop"});
  all.user()->start(1);  // and is gone
  CHECK(calls.names == Names{"start 5", "start 7", "snapshot", "stop", "start 1", "stop"});
}

TEST_CASE("MemorySnapshot records once after skip_batches, and uploads the file under its remote folder") {
  SnapshotRun run;
  MemorySnapshot snapshot({.skip_batches = 2, .max_entries = 7, .folder = run.folder.path().string()}, run.source());
  snapshot.init(run.state, run.uploading);
  run.train(snapshot, 4);
  CHECK(run.calls.names == std::vector<std::string>{"start 7"});
  run.train(snapshot, 10);
  CHECK(run.calls.names == std::vector<std::string>{"start 7", "snapshot", "stop"});
  REQUIRE(run.uploads.files.size() == 1);
  CHECK(run.uploads.files[0].name == "night/torch_memory_traces/rank0.5.memory_snapshot.pickle");
  std::ifstream file(run.folder / "rank0.5.memory_snapshot.pickle");
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "pickled");
  MemorySnapshot second({.folder = run.folder.path().string()}, run.source());
  CHECK_THROWS_AS(second.init(run.state, run.uploading), ConfigError);
}

TEST_CASE("MemorySnapshot ends when samples have jumped over its interval") {
  SnapshotRun run;
  MemorySnapshot snapshot({.skip_batches = 0, .interval = "6sp", .folder = run.folder.path().string()}, run.source());
  snapshot.init(run.state, run.uploading);
  run.train(snapshot, 3);
  CHECK(run.calls.names.back() == "stop");
  CHECK(std::filesystem::exists(run.folder / "rank0.2.memory_snapshot.pickle"));
}

TEST_CASE("MemorySnapshot warns of a failure, stops recording and does not try again") {
  SnapshotRun run;
  run.calls.fails = true;
  MemorySnapshot snapshot({.skip_batches = 0, .interval = "1ba", .folder = run.folder.path().string()}, run.source());
  snapshot.init(run.state, run.uploading);
  const test::Warnings warnings;
  run.train(snapshot, 3);
  CHECK(warnings.say("MemorySnapshot: no snapshot is written: no history"));
  CHECK(run.calls.names == std::vector<std::string>{"start 100000", "snapshot", "stop"});
  CHECK(run.uploads.files.empty());
  CHECK(std::filesystem::is_empty(run.folder.path()));
}

TEST_CASE("MemorySnapshot stops recording when a run is closed early") {
  SnapshotRun run;
  MemorySnapshot snapshot({.skip_batches = 0, .folder = run.folder.path().string()}, run.source());
  snapshot.init(run.state, run.uploading);
  run.train(snapshot, 1);
  snapshot.close(run.state, run.uploading);
  CHECK(run.calls.names == std::vector<std::string>{"start 100000", "stop"});
}

TEST_CASE("MemorySnapshot on the CPU warns once and records nothing") {
  SnapshotRun run;
  MemorySnapshot snapshot({.skip_batches = 0, .interval = "1ba", .folder = run.folder.path().string()});
  const test::Warnings warnings;
  snapshot.init(run.state, run.uploading);
  run.train(snapshot, 3);
  CHECK(warnings.texts.size() == 1);
  CHECK(warnings.say("MemorySnapshot: the allocator of cpu keeps no history, so nothing is recorded"));
  CHECK(std::filesystem::is_empty(run.folder.path()));
}

TEST_CASE("MemorySnapshot rejects options with their value") {
  CHECK_THROWS_WITH_AS(MemorySnapshot({.skip_batches = -1}), "MemorySnapshot: skip_batches must be >= 0, got -1",
                       ConfigError);
  CHECK_THROWS_WITH_AS(MemorySnapshot({.max_entries = 0}), "MemorySnapshot: max_entries must be >= 1, got 0",
                       ConfigError);
  CHECK_THROWS_AS(MemorySnapshot({.interval = "0ba"}), ConfigError);
  CHECK_THROWS_AS(MemorySnapshot({.filename = ""}), ConfigError);
}

}  // namespace composer::memory_snapshot_test
