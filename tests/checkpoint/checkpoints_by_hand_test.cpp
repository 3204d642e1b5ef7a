// What a program writes by save_checkpoint(), and what its calls are answered with when it is started again.
#include "composer/checkpoint/checkpoints_by_hand.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/ones.h>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/run_saver.h"
#include "composer/checkpoint/saved_list.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/warnings.h"

namespace composer::saving::checkpoints_by_hand_test {
namespace {

using test::Folder;
using test::Warnings;
using Call = CheckpointsByHand::Call;

// A process that has a run, whose weights are those of its calls.
struct Process final : Run {
  explicit Process(const Folder& folder, const ResumePoint& from = {})
      : state(state_of(*this)), saver(options(folder), {}, state, from) {}
  static State state_of(Process& run) {
    State state;
    state.run_name = "tiny";
    state.run = std::shared_ptr<Run>(std::shared_ptr<void>(), &run);
    return state;
  }
  static RunSaverOptions options(const Folder& folder) {
    return {.folder = folder / "ck", .filename = "ba{batch}", .async = false};
  }

  StateDict snapshot(bool) const override {
    StateDict all, model, fit;
    model["weight"] = at::ones({2});
    all["model"] = std::move(model);
    fit["number"] = number_of_fit;
    all["fit"] = std::move(fit);
    return all;
  }
  std::uint64_t weights_version() const override { return weights; }
  IntervalMoment moment(Event) const override { return {}; }
  bool interrupted() const override { return false; }
  std::optional<Seconds> time_left() const override { return std::nullopt; }
  void load(const LoadOptions&) override {}

  StateDict saved() {
    StateDict all;
    saver.save_state(all, weights);
    StateVisitor visit = StateVisitor::saving(all);
    by_hand.visit_state(visit);
    return all;
  }
  void load_calls(const StateDict& saved) {
    saver.load_state(saved, state.timestamp.batch, state.timestamp, weights);
    StateVisitor visit = StateVisitor::loading(saved, "saver");
    by_hand.visit_state(visit);
  }

  std::uint64_t weights = 1;
  std::int64_t number_of_fit = 0;
  State state;
  RunSaver saver;
  CheckpointsByHand by_hand{saver};
};

ResumePoint newest_in(const Folder& folder) {
  return {.found = find_latest(folder / "ck", "latest"), .seen = ids_of(list_checkpoints(folder / "ck"))};
}

TEST_CASE("A call that a program repeats has the checkpoint of before, and one that it had not come to is made") {
  const Folder folder;
  StateDict saved;
  {
    Process first(folder);
    CHECK(first.by_hand.save({.name = "a"}, first.state) == folder / "ck/a");
    saved = first.saved();
    CHECK(first.by_hand.save({.name = "b"}, first.state) == folder / "ck/b");
  }
  Process again(folder, newest_in(folder));
  again.load_calls(saved);
  CHECK(again.by_hand.find_earlier({.name = "a"}, again.state) == folder / "ck/a");
  CHECK(again.by_hand.find_earlier({.name = "a"}, again.state).empty());  // the second call of this name is new
  CHECK(again.by_hand.find_earlier({.name = "b"}, again.state).empty());
  CHECK(again.by_hand.find_earlier({.name = "a", .in_fit = true}, again.state) == folder / "ck/a");
}

TEST_CASE("Once a run has gone on, a call has what was saved at this moment of this fit alone") {
  const Folder folder;
  Process run(folder);
  run.number_of_fit = 3;
  run.by_hand.save({.name = "a"}, run.state);
  CHECK(run.by_hand.find_earlier({.name = "a", .resumed_in = 3}, run.state) == folder / "ck/a");
  CHECK(run.by_hand.find_earlier({.name = "a", .resumed_in = 2}, run.state).empty());
  ++run.state.timestamp.batch;
  CHECK(run.by_hand.find_earlier({.name = "a", .resumed_in = 3}, run.state).empty());
}

TEST_CASE("A call that fails is not counted, and those in fits never are") {
  const Folder folder;
  Process run(folder);
  const auto counted = [&] {
    const StateDict saved = run.saved();
    StateVisitor visit = StateVisitor::loading(saved, "saver");
    std::vector<std::int64_t> counts;
    visit("call_counts", counts);
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  std::ofstream(folder / "ck") << "no folder";
  CHECK_THROWS_AS(run.by_hand.save({.name = "a"}, run.state), CheckpointError);
  CHECK(counted() == 0);
  std::filesystem::remove(folder / "ck");
  run.by_hand.save({.name = "a", .in_fit = true}, run.state);
  CHECK(counted() == 0);
  run.by_hand.save({.name = "a"}, run.state);
  CHECK(counted() == 1);
}

TEST_CASE("A checkpoint that a call is answered with is told to be damaged once, and stays") {
  const Folder folder;
  Process run(folder);
  const std::string path = run.by_hand.save({.name = "a"}, run.state);
  const std::string file = path + "/model.safetensors";
  const auto size = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, size - 1);
  std::filesystem::resize_file(file, size);  // the last byte is zero
  const Warnings warnings;
  CHECK(run.by_hand.find_earlier({.name = "a"}, run.state) == path);
  CHECK(run.by_hand.find_earlier({.name = "a"}, run.state) == path);
  CHECK(warnings.texts.size() == 1);
  CHECK(warnings.say("it stays as it is, and cannot be loaded"));
}

TEST_CASE("A checkpoint by hand may not have the name of a periodic one, unless that is the one of now") {
  const Folder folder;
  Process run(folder);
  run.state.timestamp.batch = 1;
  run.saver.save(run.state);
  run.by_hand.check_name("ba1", run.state);
  run.state.timestamp.batch = 2;
  CHECK_THROWS_WITH_AS(run.by_hand.check_name("ba1", run.state), doctest::Contains("would be replaced"), ConfigError);
}

TEST_CASE("A call locks the folder where no fit has done so, as long as it takes") {
  const Folder folder;
  Process run(folder);
  {
    const RunFolder::ShortLock lock = run.by_hand.lock();
    CHECK(lock != nullptr);
    CHECK(run.saver.folder().is_locked());
  }
  CHECK_FALSE(run.saver.folder().is_locked());
  run.saver.begin_fit(run.state, 0);
  CHECK(run.by_hand.lock() == nullptr);
  CHECK(run.saver.folder().is_locked());
}

}  // namespace
}  // namespace composer::saving::checkpoints_by_hand_test
