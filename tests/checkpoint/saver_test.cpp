#include "composer/checkpoint/saver.h"

#include <atomic>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/checkpoint/checkpoints.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::saving::saver_test {
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
  manifest.metrics = std::move(metrics);
  saver.plan(manifest, {.weights = static_cast<std::uint64_t>(batch)});
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
    saver.plan(manifest);
    saver.save(manifest, state);
    std::get<at::Tensor>(*std::get<StateDict>(*state.find("model")).find("weight")).fill_(2);
    saver.wait();
    const StateDict loaded = load(open_checkpoint(folder / "ba1"));
    CHECK(std::get<at::Tensor>(*std::get<StateDict>(*loaded.find("model")).find("weight")).eq(1).all().item<bool>());
    CHECK(std::get<double>(*loaded.find("number")) == 1);
  }
}

TEST_CASE("A text or a name in the state that is not UTF-8 is named") {
  const test::Folder folder;
  const Saver saver({.folder = folder.path()});
  Manifest manifest;
  manifest.name = "ba1";
  StateDict text, name;
  text["algorithms"] = StateDict();
  std::get<StateDict>(text["algorithms"])["file"] = std::string("caf\xE9");
  name["caf\xE9"] = 1.0;
  CHECK_THROWS_WITH_AS(saver.check_writable(manifest, text), doctest::Contains("algorithms/file"), ConfigError);
  CHECK_THROWS_WITH_AS(saver.check_writable(manifest, name), doctest::Contains("caf\xEF\xBF\xBD"), ConfigError);
}

TEST_CASE("a file of the same checkpoint that is not the one that the manifest means is refused") {
  const test::Folder folder;
  Saver saver({.folder = folder.path(), .asynchronous = false});
  save(saver, 1);
  const Found found = open_checkpoint(folder / "ba1");
  REQUIRE(found.manifest.version == Manifest::kVersion);
  Found other = found;
  other.manifest.files.front().checksum = "xxh3:0123456789abcdef";
  CHECK_NOTHROW(load(found));
  CHECK_THROWS_AS(load(other), CheckpointError);
}

TEST_CASE("Each checkpoint of a run has a larger number than those before it, also after a failure and a resume") {
  const test::Folder folder;
  const auto number = [&](int batch) { return open_checkpoint(folder / join("ba", batch)).manifest.number; };
  StateDict state;
  Manifest resumed;
  {
    Saver saver({.folder = folder.path(), .asynchronous = false});
    save(saver, 5);
    save(saver, 6);
    Manifest never_saved;
    never_saved.name = "ba7";
    saver.plan(never_saved);
    save(saver, 1);
    CHECK(number(5) == 1);
    CHECK(number(6) == 2);
    CHECK(number(1) == 3);
    resumed = open_checkpoint(folder / "ba6").manifest;
    StateVisitor visit = StateVisitor::saving(state);
    saver.visit_state(visit);
  }
  Saver adopts({.folder = folder.path(), .asynchronous = false, .run_id = resumed.run_id});
  adopts.list().adopt(resumed);
  save(adopts, 7);
  CHECK(number(7) == 3);
  StateVisitor visit = StateVisitor::loading(state, "");
  Saver loads({.folder = folder.path(), .asynchronous = false, .run_id = resumed.run_id});
  loads.visit_state(visit);
  save(loads, 8);
  CHECK(number(8) == 4);
}

TEST_CASE("a name that was to be deleted and is saved again is not deleted") {
  const test::Folder folder;
  const auto files = std::make_shared<Refusing>();
  Saver saver({.folder = folder.path(), .keep = 1, .asynchronous = false}, files);
  save(saver, 1);
  files->refuses_removal = true;
  save(saver, 2);  // ba1 should go, and cannot
  saver.wait();
  files->refuses_removal = false;
  save(saver, 1);
  saver.wait();
  CHECK(names_in(folder.path()) == Names{"ba1"});
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
    CHECK(saver.list().names() == Names{"ba2", "ba5"});
    CHECK(open_checkpoint(folder / "ba5").manifest.parent == "ba2");
  }
}

TEST_CASE("under CONTINUE, the best is still among those that are kept after a write that failed") {
  const test::Folder folder;
  auto files = std::make_shared<Refusing>();
  Saver saver({.folder = folder.path(),
               .keep = 1,
               .best = Best{.metric = "eval/a", .better = Better::HIGHER},
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

TEST_CASE("under CONTINUE, what is told of a checkpoint holds also if the write of the next one fails") {
  const test::Folder folder;
  auto files = std::make_shared<Refusing>();
  Saver saver({.folder = folder.path(),
               .best = Best{.metric = "eval/a", .better = Better::HIGHER},
               .on_failure = OnFailure::CONTINUE,
               .asynchronous = false},
              files);
  save(saver, 1);
  files->refused_saves = 1;
  save(saver, 2);
  saver.list().add_metrics(1, {{"eval/a", 0.5}});
  saver.wait();
  CHECK(saver.list().names() == Names{"ba1"});
  REQUIRE(saver.list().best() != nullptr);
  CHECK(saver.list().best()->value == 0.5);
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

TEST_CASE("NaN never counts as the best, and a checkpoint with a number stays") {
  const test::Folder folder;
  Saver saver({.folder = folder.path(),
               .keep = 1,
               .best = Best{.metric = "eval/a", .better = Better::HIGHER},
               .asynchronous = false});
  const double values[] = {0.5, NAN, 0.1, NAN};
  for (int batch = 1; batch <= 4; ++batch) save(saver, batch, {{"eval/a", values[batch - 1]}});
  saver.wait();
  CHECK(names_in(folder.path()) == Names{"ba1", "ba4"});
}

TEST_CASE("A resumed run that follows another metric takes its values from the manifests") {
  const test::Folder folder;
  const auto options = [&](const char* metric) {
    return SaverOptions{.folder = folder.path(),
                        .best = Best{.metric = metric, .better = Better::HIGHER},
                        .asynchronous = false,
                        .run_id = "run"};
  };
  StateDict state;
  {
    Saver saver(options("eval/a"));
    save(saver, 1, {{"eval/a", 0.9}, {"eval/b", 0.1}});
    save(saver, 2, {{"eval/a", 0.1}, {"eval/b", 0.9}});
    save(saver, 3);
    saver.list().add_metrics(3, {{"eval/a", 0.5}, {"eval/b", 0.95}});
    StateVisitor visit = StateVisitor::saving(state);
    saver.visit_state(visit);
    saver.write_notes();
    saver.link_best();
    CHECK(saver.list().best()->name == "ba1");
  }
  for (const auto& [metric, best] : {std::pair("eval/a", "ba1"), std::pair("eval/b", "ba3")}) {
    Saver saver(options(metric));
    StateVisitor visit = StateVisitor::loading(state, "saver");
    saver.visit_state(visit);
    REQUIRE(saver.list().best());
    CHECK(saver.list().best()->name == best);
  }
}

TEST_CASE("As long as nobody knows which values are better, no checkpoint is deleted for its value") {
  const test::Folder folder;
  Saver saver({.folder = folder.path(), .keep = 1, .best = Best{.metric = "eval/a"}, .asynchronous = false});
  save(saver, 1), save(saver, 2);
  saver.wait();
  CHECK(names_in(folder.path()) == Names{"ba2"});
  save(saver, 3, {{"eval/a", 0.1}}), save(saver, 4, {{"eval/a", 0.2}}), save(saver, 5, {{"eval/a", 0.3}});
  saver.wait();
  CHECK(names_in(folder.path()) == Names{"ba2", "ba3", "ba4", "ba5"});
  CHECK_FALSE(saver.list().best());
  saver.list().metric().prefer(Better::LOWER);
  save(saver, 6);
  saver.wait();
  CHECK(names_in(folder.path()) == Names{"ba3", "ba6"});
}

TEST_CASE("The direction is saved with the values, and the options' own goes before it") {
  const test::Folder folder;
  const auto options = [&](const char* metric, std::optional<Better> better) {
    return SaverOptions{.folder = folder.path(),
                        .best = Best{.metric = metric, .better = better},
                        .asynchronous = false,
                        .run_id = "r"};
  };
  StateDict state;
  {
    Saver saver(options("eval/a", {}));
    saver.list().metric().prefer(Better::LOWER);
    save(saver, 1, {{"eval/a", 0.1}}), save(saver, 2, {{"eval/a", 0.2}});
    StateVisitor visit = StateVisitor::saving(state);
    saver.visit_state(visit);
  }
  const auto resumed = [&](const char* metric, std::optional<Better> better) {
    Saver saver(options(metric, better));
    StateVisitor visit = StateVisitor::loading(state, "saver");
    saver.visit_state(visit);
    return saver.list().best() ? saver.list().best()->name : "none";
  };
  CHECK(resumed("eval/a", {}) == "ba1");
  CHECK(resumed("eval/a", Better::HIGHER) == "ba2");
  CHECK(resumed("eval/b", {}) == "none");
}

TEST_CASE(
    "What was measured later is noted with the next checkpoint, or with the one after that if it is not written") {
  const test::Folder folder;
  auto files = std::make_shared<Refusing>();
  Saver saver({.folder = folder.path(),
               .best = Best{.metric = "eval/a", .better = Better::HIGHER},
               .on_failure = OnFailure::CONTINUE,
               .asynchronous = false},
              files);
  const auto noted = [&](const char* name) {
    return open_checkpoint(folder / name).manifest.metrics.contains("eval/a");
  };
  save(saver, 1);
  saver.list().add_metrics(1, {{"eval/a", 0.5}});
  files->refused_saves = 1;
  save(saver, 2);
  saver.wait();
  CHECK_FALSE(noted("ba1"));
  CHECK(saver.list().has_notes());
  save(saver, 3);
  saver.wait();
  CHECK(noted("ba1"));
  CHECK_FALSE(saver.list().has_notes());
}

TEST_CASE("A checkpoint that another run has replaced is not deleted") {
  const test::Folder folder;
  const auto options = [&](const char* run) {
    return SaverOptions{.folder = folder.path(), .keep = 1, .asynchronous = false, .overwrite = true, .run_id = run};
  };
  Saver a(options("a")), b(options("b"));
  save(a, 1), save(b, 1), save(a, 2);
  a.wait();
  CHECK(names_in(folder.path()) == Names{"ba1", "ba2"});
}

// What a saver would have kept in a checkpoint, if it said so.
StateDict saver_state(const Names& saved, const Names& retired) {
  StateDict state;
  StateVisitor visit = StateVisitor::saving(state);
  Names names = saved, old = retired;
  std::vector<double> values(saved.size());
  visit("saved", names), visit("values", values), visit("retired", old);
  return state;
}

TEST_CASE("A resumed run deletes what its checkpoint says is outdated: not when it is loaded, and nothing of others") {
  const test::Folder folder;
  const SaverOptions options{.folder = folder.path(), .asynchronous = false, .run_id = "run"};
  Saver before(options), other({.folder = folder.path(), .asynchronous = false, .run_id = "other"});
  for (const int batch : {1, 2, 3}) save(before, batch);
  save(other, 4);
  std::filesystem::create_directories(folder / "plots");
  const StateDict state =
      saver_state({"ba2", "ba3"}, {"ba1", "ba2", "ba4", "plots", "../" + folder.path().filename().string()});
  Saver saver(options);
  StateVisitor visit = StateVisitor::loading(state, "saver");
  saver.visit_state(visit);
  CHECK(names_in(folder.path()) == Names{"ba1", "ba4", "ba2", "ba3"});  // ba4 is the other run's first
  saver.clean_up();
  CHECK(names_in(folder.path()) == Names{"ba4", "ba2", "ba3"});
  CHECK(std::filesystem::exists(folder / "plots"));
}

// Fails while it is told to, at every path.
struct Stale final : FileSystem {
  Type type(const Path& path) override {
    if (failures > 0) {
      --failures;
      throw FileError("made to fail", path, std::error_code(ESTALE, std::generic_category()));
    }
    return FileSystem::type(path);
  }
  std::atomic<int> failures = 0;
};

TEST_CASE("Queries of the disk that fail are handled as on_failure says") {
  for (const auto on_failure : {OnFailure::RETRY, OnFailure::CONTINUE, OnFailure::FAIL}) {
    const test::Folder folder;
    auto files = std::make_shared<Stale>();
    Saver saver({.folder = folder.path(),
                 .on_failure = on_failure,
                 .asynchronous = false,
                 .time_left = [] { return std::optional<std::chrono::steady_clock::duration>(900ms); }},
                files);
    save(saver, 1);
    files->failures = 1;
    if (on_failure == OnFailure::FAIL) {
      CHECK_THROWS_AS(save(saver, 2), CheckpointError);
      continue;
    }
    CHECK_NOTHROW(save(saver, 2));
    saver.wait();
    const bool retried = on_failure == OnFailure::RETRY;
    CHECK(saver.list().names() == (retried ? Names{"ba1", "ba2"} : Names{"ba1"}));
    CHECK(saver.writer().failure().empty() == retried);
    CHECK(std::filesystem::exists(folder / "ba2") == retried);
  }
}

// Cannot move the link.
struct Unlinkable final : FileSystem {
  void rename(const Path& from, const Path& to) override {
    if (fails && to.filename() == "latest")
      throw FileError("made to fail", to, std::error_code(EIO, std::generic_category()));
    FileSystem::rename(from, to);
  }
  bool fails = false;
};

TEST_CASE("A checkpoint that is in place though a later step failed counts, and is deleted in its turn") {
  for (const OnFailure on_failure : {OnFailure::CONTINUE, OnFailure::FAIL})
    for (const bool asynchronous : {false, true}) {
      CAPTURE(on_failure == OnFailure::FAIL);
      CAPTURE(asynchronous);
      const test::Folder folder;
      auto files = std::make_shared<Unlinkable>();
      Saver saver({.folder = folder.path(), .keep = 1, .on_failure = on_failure, .asynchronous = asynchronous}, files);
      save(saver, 1);
      saver.wait();
      files->fails = true;
      const auto fail = [&] {
        save(saver, 2);
        saver.wait();
        if (!saver.writer().failure().empty()) throw CheckpointError(saver.writer().failure());
      };
      CHECK_THROWS_WITH_AS(fail(), doctest::Contains("may not survive"), CheckpointError);
      CHECK(saver.list().names() == Names{"ba2"});
      CHECK(names_in(folder.path()) == Names{"ba1", "ba2"});  // the old one, until the new one is certain
      files->fails = false;
      save(saver, 3);
      saver.wait();
      CHECK(names_in(folder.path()) == Names{"ba3"});
    }
}

TEST_CASE("After a plan whose snapshot failed, the next one does not count it") {
  const test::Folder folder;
  Saver saver({.folder = folder.path(), .keep = 1, .asynchronous = false});
  save(saver, 1);
  saver.plan(test::manifest_of(2, "ba2"));
  saver.plan(test::manifest_of(2, "ba2"));
  CHECK(saver.list().names() == Names{"ba2"});
  save(saver, 3);
  saver.wait();
  CHECK(saver.list().names() == Names{"ba3"});
  CHECK(names_in(folder.path()) == Names{"ba3"});
}

TEST_CASE("A hundred thousand tensors are saved and loaded, each under its name") {
  constexpr int kCount = 50'000;
  const test::Folder folder;
  StateDict state, model, optimizer;
  const at::Tensor values = at::arange(2 * kCount, at::kFloat);
  for (int i = 0; i < kCount; ++i) {
    model[join("layers.", i, ".weight")] = values[i];
    optimizer[join("layers.", i, ".weight")] = values[i + kCount];
  }
  state["model"] = std::move(model), state["optimizer"] = std::move(optimizer);
  Saver saver({.folder = folder.path()});
  saver.plan(test::manifest_of(1, "all"));
  saver.save(test::manifest_of(1, "all"), state);
  saver.wait();
  const StateDict loaded = load(open_checkpoint(folder / "all"));
  for (const auto& [part, first] : {std::pair("model", 0), std::pair("optimizer", kCount)}) {
    const StateDict& tensors = std::get<StateDict>(*loaded.find(part));
    CHECK(tensors.size() == kCount);
    int right = 0;
    for (int i = 0; i < kCount; ++i)
      right += std::get<at::Tensor>(*tensors.find(join("layers.", i, ".weight"))).item<float>() ==
               static_cast<float>(i + first);
    CHECK(right == kCount);
  }
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
                     return std::optional(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                         own->writer().last_write_time() * 0.5));
                   }},
              files);
  own = &saver;
  CHECK(saver.writer().last_write_time() == 0s);
  save(saver, 1);
  CHECK(saver.writer().last_write_time() > 0s);
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

TEST_CASE("the first save removes what a dead process has left, and clean_up() does; adopting a checkpoint does not") {
  const test::Folder folder;
  const auto leave = [&] { std::filesystem::create_directories(folder / ".tmp-dead-1-1" / "inside"); };
  leave();
  Saver saver({.folder = folder.path(), .asynchronous = false});
  CHECK(std::filesystem::exists(folder / ".tmp-dead-1-1"));
  save(saver, 1);
  CHECK_FALSE(std::filesystem::exists(folder / ".tmp-dead-1-1"));
  leave();
  Saver later({.folder = folder.path()});
  later.list().adopt(open_checkpoint(folder / "ba1").manifest);
  CHECK(std::filesystem::exists(folder / ".tmp-dead-1-1"));
  later.clean_up();
  CHECK_FALSE(std::filesystem::exists(folder / ".tmp-dead-1-1"));
}

}  // namespace
}  // namespace composer::saving::saver_test
