#include "composer/checkpoint/run_lock.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/wait.h>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"
#include "tests/support/left_child.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::saving::run_lock_test {
namespace {

// A process that has the lock, until it is killed.
class Holder {
 public:
  // `prepare` is called there.
  explicit Holder(
      const test::Folder& folder, const std::function<void()>& prepare = [] {}) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const RunLock lock(folder.path(), "r");
      prepare();
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]), ::close(ready[1]);
  }
  pid_t pid() const { return pid_; }
  void kill() const { ::kill(pid_, SIGKILL); }
  void wait() const { ::waitpid(pid_, nullptr, 0); }

 private:
  pid_t pid_ = -1;
};

TEST_CASE("Another process that trains the run is named, and its death frees the folder") {
  const test::Folder folder;
  const Holder other(folder);
  CHECK_THROWS_WITH_AS(RunLock(folder.path(), "r"), doctest::Contains(join("process ", other.pid(), " on ").c_str()),
                       ConfigError);
  CHECK_THROWS_WITH_AS(RunLock(folder.path(), "r"), doctest::Contains(folder.path().c_str()), ConfigError);
  CHECK_NOTHROW(RunLock(folder.path(), "another run"));
  other.kill();
  other.wait();
  CHECK_NOTHROW(RunLock(folder.path(), "r"));
  CHECK_NOTHROW(RunLock(folder.path(), "r"));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("A process that was killed and is not gone yet is waited for") {
  constexpr std::size_t kBytes = std::size_t{256} << 20;  // which the system takes its time to free
  const test::Folder folder;
  const Holder other(folder, [] {
    const void* memory =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) ::_exit(1);
  });
  other.kill();
  CHECK_NOTHROW(RunLock(folder.path(), "r"));
  other.wait();
}

TEST_CASE("A lock whose folder was renamed is not in place, and leaves that of the new folder alone") {
  const test::Folder folder;
  const auto path = folder / "ck";
  std::filesystem::create_directories(path);
  std::optional<RunLock> lock(std::in_place, path, "r");
  CHECK(lock->is_in_place());
  std::filesystem::rename(path, folder / "moved");
  CHECK_FALSE(lock->is_in_place());
  std::filesystem::create_directories(path);
  const RunLock other(path, "r");
  lock.reset();
  CHECK(other.is_in_place());
}

TEST_CASE("A mark that a process has left is told from one of a living process, and from those of other runs") {
  const test::Folder folder;
  const auto path = folder / "runs/ck";
  const auto was_left = [&](const char* name) {
    RunMark mark(path, name);
    const bool left = mark.was_left();
    mark.end();
    return left;
  };
  const auto leave = [&](const char* name) { const RunMark mark(path, name); };
  CHECK_FALSE(was_left("r"));
  CHECK(std::filesystem::is_empty(folder.path()));  // the folders were made for it
  {
    const RunMark living(path, "r");
    CHECK_FALSE(was_left("r"));
    CHECK_NOTHROW(RunLock(path, "r"));  // nobody is told that the run is in use
    RunMark::end_left(path, "r");
  }
  CHECK(was_left("r"));
  CHECK_FALSE(was_left("r"));
  test::status_of_child([&] {
    const RunMark mark(path, "r");
    ::raise(SIGKILL);
  });
  CHECK_FALSE(was_left(""));
  CHECK_FALSE(was_left("another"));
  CHECK(was_left("r"));
  leave("r"), leave("");
  CHECK(was_left(""));
  RunMark::end_left(path, "r");
  CHECK_FALSE(was_left("r"));
  CHECK_NOTHROW(RunMark("/proc/none", "r").end());
}

TEST_CASE("A mark that was left says the id of the run, and nothing that is no id") {
  const test::Folder folder;
  const auto id_after = [&](const std::string& id) {
    const RunMark mark(folder.path(), "r", id);
    return mark.run_id();
  };
  CHECK(id_after("0123456789abcdef") == "0123456789abcdef");
  CHECK(id_after("ffffffffffffffff") == "0123456789abcdef");
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    std::ofstream(file.path()) << "run ../../0123, process 1";
  CHECK(id_after("ffffffffffffffff") == "ffffffffffffffff");
}

TEST_CASE("A forked child neither ends nor holds the mark of its parent") {
  const test::Folder folder;
  {
    RunMark mark(folder.path(), "r");
    CHECK(test::ended_well(test::status_of_child([&] { mark.end(); })));
    CHECK_FALSE(std::filesystem::is_empty(folder.path()));
  }
  CHECK(RunMark(folder.path(), "r").was_left());
}

TEST_CASE("A forked child that ends by an error leaves the lock to its parent") {
  const test::Folder folder;
  std::optional<RunLock> lock(std::in_place, folder.path(), "r");
  CHECK(test::ended_well(test::status_of_child([&] { lock.reset(); })));
  CHECK_THROWS_WITH_AS(RunLock(folder.path(), "r"), doctest::Contains("is in use"), ConfigError);
  lock.reset();
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("A child that a killed process has left behind does not keep the folder locked") {
  const test::Folder folder;
  const auto hold = [&](const std::function<void()>& be_killed) {
    const RunLock lock(folder.path(), "r");
    be_killed();
  };
  test::with_child_left_behind(hold, [&] { CHECK_NOTHROW(RunLock(folder.path(), "r")); });
}

TEST_CASE("While a fit runs, a second trainer of the run is refused, and reading its checkpoints is not") {
  const test::Folder folder;
  const auto options = [&] {
    TrainerOptions made = test::tiny_options();
    made.save_folder = folder / "ck";
    made.save_interval = "1ba";
    return made;
  };
  Trainer first(options());
  first.begin();
  REQUIRE(first.step());
  REQUIRE(first.step());
  const std::string saved = first.save_checkpoint("mine");
  CHECK_NOTHROW(open_checkpoint(saved));
  {
    Trainer second(options());
    CHECK_THROWS_WITH_AS(second.fit(), doctest::Contains("is in use"), ConfigError);
    TrainerOptions other = options();
    other.run_name = "other";
    other.save_folder.clear();
    other.load_path = saved;
    CHECK_NOTHROW(Trainer(std::move(other)));
  }
  while (first.step()) {
  }
  first.end();
  Trainer second(options());
  CHECK_NOTHROW(second.fit("1ep"));
}

TEST_CASE("A trainer whose run another one has continued is refused, and what that has saved stays") {
  const test::Folder folder;
  const auto options = [&] {
    TrainerOptions made = test::tiny_options();
    made.max_duration.reset();
    made.save_folder = folder / "ck";
    made.save_num_checkpoints_to_keep = 1;
    return made;
  };
  Trainer first(options());
  first.fit("1ep");
  CHECK_NOTHROW(first.fit("1ep"));
  Trainer second(options());
  for (int fits = 0; fits < 3; ++fits) second.fit("1ep");  // two of them are done
  CHECK_THROWS_WITH_AS(first.fit("1ep"), doctest::Contains("ep3-ba12 was written by another Trainer"), CheckpointError);
  CHECK(std::filesystem::exists(second.saved_checkpoints().back()));
  CHECK_NOTHROW(second.fit("1ep"));
  CHECK(Trainer(options()).resumed_from() == folder / "ck/ep4-ba16");
}

TEST_CASE("Who may not train the run may not save a checkpoint of it by hand, which the run would go on from") {
  const test::Folder folder;
  const auto options = [&] {
    TrainerOptions made = test::tiny_options();
    made.max_duration.reset();
    made.run_name = "r";
    made.save_folder = folder / "ck";
    made.save_interval = "1ba";
    return made;
  };
  const auto latest = [&] { return std::filesystem::canonical(folder / "ck/latest").filename(); };
  Trainer fresh(options());
  Trainer first(options());
  first.begin({.duration = "1ep"});
  first.step();
  Trainer second(options());
  CHECK(test::error_of([&] { second.save_checkpoint("mine"); }).find("is in use") != std::string::npos);
  while (first.step()) {
  }
  first.end();
  const auto newest = latest();
  for (Trainer* outdated : {&fresh, &second, &fresh, &second}) {
    const std::string error = test::error_of([&] { outdated->save_checkpoint("mine"); });
    CHECK_MESSAGE(error.find("make th") != std::string::npos, error);
  }
  CHECK(latest() == newest);
  CHECK_FALSE(std::filesystem::exists(folder / "ck/mine"));
  CHECK_NOTHROW(first.save_checkpoint("own"));
  CHECK(latest() == "own");
}

TEST_CASE("A folder that can be written only later is locked from then on") {
  const test::Folder folder;
  const test::Warnings warnings;
  TrainerOptions options = test::tiny_options();
  options.run_name = "r";
  options.save_folder = folder / "ck";
  options.save_interval = "1ba";
  options.save_on_failure = OnFailure::CONTINUE;
  options.save_async = false;
  std::ofstream(folder / "ck") << "in the way";
  bool was_refused = false;
  options.callbacks = {test::At([&](Event event, const State& state) {
    if (event == Event::BATCH_END && state.timestamp.batch == 2) std::filesystem::remove(folder / "ck");
    if (event != Event::BATCH_END || state.timestamp.batch != 4) return;
    try {
      const RunLock lock(folder / "ck", "r");
    } catch (const ConfigError&) {
      was_refused = true;
    }
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(was_refused);
  CHECK(std::filesystem::exists(folder / "ck/latest"));
}

}  // namespace
}  // namespace composer::saving::run_lock_test
