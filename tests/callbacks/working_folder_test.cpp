// Where callbacks write: into the working directory that the trainer was made in, wherever the program goes; and one
// file for each rank.
#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "composer/callbacks/checkpoint_saver.h"
#include "composer/callbacks/export_for_inference.h"
#include "composer/callbacks/memory_snapshot.h"
#include "composer/callbacks/mlperf_callback.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/callbacks/oom_observer.h"
#include "composer/callbacks/profiler.h"
#include "composer/device/allocator_history.h"
#include "composer/util/threads_here.h"
#include "tests/callbacks/fake_history.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::working_folder_test {
namespace {

namespace fs = std::filesystem;

struct Writes {
  const char* name;
  std::function<void(TrainerOptions&)> add;  // a callback that writes into the folder "made"
};

const std::vector<Writes>& all_that_write() {
  using namespace callbacks;
  static HistoryCalls calls;
  static const std::vector<Writes> all = {
      {"Profiler", [](TrainerOptions& to) { to.callbacks.add(Profiler({.operators = false, .folder = "made"})); }},
      {"MemorySnapshot",
       [](TrainerOptions& to) {
         to.callbacks.add(std::make_shared<MemorySnapshot>(MemorySnapshotOptions{.interval = "1ba", .folder = "made"},
                                                           std::make_unique<FakeHistory>(calls)));
       }},
      {"OOMObserver",
       [](TrainerOptions& to) {
         to.callbacks.add(OOMObserver({.folder = "made"}));
         to.callbacks.add(At([](Event event, const State& state) {
           if (event == Event::BATCH_END && state.timestamp.batch == 2) throw std::bad_alloc();
         }));
       }},
      {"NaNMonitor",
       [](TrainerOptions& to) {
         Batch data = tiny_data(16);
         data.at("input")[15].fill_(std::numeric_limits<double>::quiet_NaN());
         to.train_dataloader = data::in_memory(data, {.batch_size = 4, .shuffle = false});
         to.callbacks.add(NaNMonitor({.folder = "made"}));
       }},
      {"ExportForInferenceCallback",
       [](TrainerOptions& to) {
         to.callbacks.add(ExportForInferenceCallback(
             {.save_format = ExportFormat::SAFETENSORS, .save_path = "made/{run_name}-{batch}.safetensors"}));
       }},
      {"MLPerfCallback",
       [](TrainerOptions& to) {
         to.eval_dataloader = tiny_loader(8, 4);
         to.callbacks.add(MLPerfCallback({.root_folder = "made", .index = 0}));
       }},
      {"CheckpointSaver",
       [](TrainerOptions& to) {
         to.callbacks.add(CheckpointSaver({.folder = "made/{run_name}", .save_interval = "2ba"}));
       }},
  };
  return all;
}

std::size_t files_below(const fs::path& folder) {
  const auto is_file = [](const fs::directory_entry& entry) { return entry.is_regular_file(); };
  return static_cast<std::size_t>(
      std::count_if(fs::recursive_directory_iterator(folder), fs::recursive_directory_iterator(), is_file));
}

// In a child, because the working directory is the process's. Braces in its name are no placeholders.
TEST_CASE("Callbacks write into the working directory in which the trainer was made, wherever the program goes") {
  for (const Writes& one : all_that_write()) {
    CAPTURE(one.name);
    const Folder folder;
    const fs::path home = folder / "ho{me}", elsewhere = folder / "elsewhere";
    for (const fs::path& made : {home, elsewhere}) fs::create_directories(made);
    const int status = status_of_child([&] {
      use_threads_here(1);  // OpenMP's threads do not survive a fork
      const Warnings quiet;
      fs::current_path(home);
      TrainerOptions options = tiny_options();
      one.add(options);
      Trainer trainer(std::move(options));
      fs::current_path(elsewhere);
      try {
        trainer.fit();
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): two of them report an error
      }
      trainer.close();
    });
    CHECK(ended_well(status));
    CHECK(fs::is_empty(elsewhere));
    REQUIRE(fs::exists(home / "made"));
    CHECK(files_below(home / "made") > 0);
  }
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

using Names = std::set<std::string>;

TEST_CASE("Ranks whose traces have one name write one file each") {
  for (const std::string name : {"trace.json", "trace-{rank}.json"}) {
    CAPTURE(name);
    const Folder folder;
    dist::test::results_in_ranks(2, [&](const std::shared_ptr<dist::World>& world) {
      TrainerOptions options = tiny_options();
      options.world = world;
      options.callbacks.add(callbacks::Profiler(
          {.operators = false, .sys_prof_cpu = false, .folder = folder / "traces", .filename = name, .print = false}));
      Trainer(std::move(options)).fit();
      return 0;
    });
    CHECK(names_in(folder / "traces") ==
          (name == "trace.json" ? Names{"trace.json", "trace-rank1.json"} : Names{"trace-0.json", "trace-1.json"}));
  }
}

struct Uploads final : LoggerDestination {
  void upload_file(const LogFile& file, const State&) override { names.insert(file.name); }
  Names names;
};

TEST_CASE("Snapshots and reports of ranks have names of their own, here and at the loggers") {
  using namespace callbacks;
  for (const bool tells : {false, true}) {
    CAPTURE(tells);
    const Folder folder;
    Names uploaded;
    for (const int rank : {0, 2}) {
      FakeRun run;
      run.state.rank = rank;
      run.state.world_size = 3;
      Uploads uploads;
      Logger logger(run.state, {&uploads});
      HistoryCalls calls;
      const std::string mark = tells ? "{rank}" : "";
      MemorySnapshot snapshot({.skip_batches = 0,
                               .interval = "1ba",
                               .folder = folder.path(),
                               .filename = "s" + mark,
                               .remote_file_name = "m"},
                              std::make_unique<FakeHistory>(calls));
      OOMObserver observer({.folder = folder.path(), .filename = "o" + mark, .remote_file_name = "r" + mark});
      snapshot.init(run.state, logger);
      observer.init(run.state, logger);
      snapshot.batch_start(run.state, logger);
      run.state.timestamp = run.state.timestamp.to_next_batch(4, 0, Seconds(1));
      snapshot.batch_end(run.state, logger);
      observer.run_fails(std::make_exception_ptr(std::bad_alloc()), run.state, logger);
      uploaded.merge(uploads.names);
      if (rank == 0) fs::rename(folder / (tells ? "s0.pickle" : "s.pickle"), folder / "first");  // no other run's
    }
    CHECK(names_in(folder.path()) == (tells ? Names{"first", "s2.pickle", "o0_report.txt", "o2_report.txt"}
                                            : Names{"first", "s-rank2.pickle", "o_report.txt", "o-rank2_report.txt"}));
    CHECK(uploaded == (tells ? Names{"m/s0.pickle", "m/s2.pickle", "r0_report.txt", "r2_report.txt"}
                             : Names{"m/s.pickle", "m/s-rank2.pickle", "r_report.txt", "r-rank2_report.txt"}));
  }
}

}  // namespace
}  // namespace composer::test::working_folder_test
