// Files that grow have one writer, whoever opens them, however and when; and a file that has one is not renamed.
#include "composer/util/output_file.h"

#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <sys/inotify.h>
#include <sys/stat.h>

#include "composer/core/error.h"
#include "composer/util/file_lock.h"
#include "composer/util/new_file.h"
#include "composer/util/set_aside.h"
#include "tests/support/doctest.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/folder.h"
#include "tests/support/in_child.h"
#include "tests/support/left_child.h"

namespace composer::util::output_file_test {
namespace {

namespace fs = std::filesystem;
using composer::test::Folder;

constexpr const char* kInUse = "is being written by another logger";

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("A file that somebody writes is opened by nobody else, also by a link, and stays as it is") {
  const Folder folder;
  const std::string path = folder / "log", link = folder / "link";
  fs::create_symlink("log", link);
  OutputFile first("First", path, FileMode::CREATE, Writers::ONE);
  first.write("half a line");
  for (const std::string& name : {path, link})
    for (const FileMode mode : {FileMode::APPEND, FileMode::OVERWRITE})
      CHECK_THROWS_WITH_AS(OutputFile("Second", name, mode, Writers::ONE), doctest::Contains(kInUse), ConfigError);
  CHECK(content_of(path) == "half a line");
  first.close();
  OutputFile second("Second", link, FileMode::APPEND, Writers::ONE);
  CHECK(content_of(path) == "half a line\n");
  CHECK_THROWS_WITH_AS(OutputFile("Third", path, FileMode::OVERWRITE, Writers::ONE), doctest::Contains(kInUse),
                       ConfigError);
}

TEST_CASE("Of those who open a file at once one alone gets it") {
  for (int round = 0; round < 5; ++round) {
    const Folder folder;
    const std::string path = folder / "log";
    std::atomic<int> waiting = 0, got = 0, ended = 0;
    constexpr int kThreads = 4;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&] {
        for (++waiting; waiting < kThreads;) std::this_thread::yield();
        try {
          const OutputFile file("Logger", path, FileMode::APPEND, Writers::ONE);
          ++got;
          for (++ended; ended < kThreads;) std::this_thread::yield();
        } catch (const ConfigError&) {
          ++ended;
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(got == 1);
  }
}

TEST_CASE("A file that many may write has no lock, and what each appends is there whole") {
  const Folder folder;
  const std::string path = folder / "points";
  OutputFile first("First", path, FileMode::CREATE, Writers::MANY),
      second("Second", path, FileMode::APPEND, Writers::MANY);
  CHECK_FALSE(is_in_use(path));
  first.write("1\n"), second.write("2\n"), first.write("3\n");
  CHECK(content_of(path) == "1\n2\n3\n");
}

TEST_CASE("Of what a full disk refuses nothing is in the file, and what others have written stays") {
  const Folder folder;
  const std::string path = folder / "points";
  OutputFile first("First", path, FileMode::CREATE, Writers::MANY),
      second("Second", path, FileMode::APPEND, Writers::MANY);
  first.write("one\n"), second.write("two\n");
  {
    const test::FileSizeLimit limit(10);
    CHECK_THROWS_AS(first.write("three\n"), Error);
    CHECK_THROWS_AS(second.write("four\n"), Error);
  }
  first.write("five\n");
  CHECK(content_of(path) == "one\ntwo\nfive\n");
}

TEST_CASE("An end of a file that a full disk refuses to replace is as before") {
  const Folder folder;
  const std::string path = folder / "log";
  OutputFile file("Logger", path, FileMode::CREATE, Writers::ONE);
  file.write("begin end");
  file.replace_end(6, "other end", "end");
  CHECK(content_of(path) == "begin other end");
  {
    const test::FileSizeLimit limit(17);
    CHECK_THROWS_AS(file.replace_end(6, "a longer end than this", "other end"), Error);
  }
  CHECK(content_of(path) == "begin other end");
}

TEST_CASE("A child that a killed process has left behind keeps no lock of it") {
  const Folder folder;
  const std::string log = folder / "log", file = folder / "file", target = folder / "new";
  std::ofstream(file) << "x";
  const auto hold = [&](const std::function<void()>& be_killed) {
    const OutputFile written("First", log, FileMode::CREATE, Writers::ONE);
    const FileLock of_file(file), of_folder(folder.path(), FileLock::Kind::FOLDER);
    const NewFile unfinished{fs::path(target)};
    be_killed();
  };
  test::with_child_left_behind(hold, [&] {
    CHECK_NOTHROW(OutputFile("Second", log, FileMode::APPEND, Writers::ONE));
    CHECK_FALSE(is_in_use(file));
    CHECK(FileLock(folder.path(), FileLock::Kind::FOLDER).state() == FileLock::State::HELD);
    remove_leftovers_of(target);
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 2);
  });
}

TEST_CASE("A forked child leaves its parent's file locked and as it is, and an error says that it cannot write it") {
  const Folder folder;
  const std::string path = folder / "log";
  std::optional<OutputFile> file(std::in_place, "Logger", path, FileMode::CREATE, Writers::ONE);
  file->write("whole\n");
  CHECK(test::ended_well(test::status_of_child([&] {
    try {
      file->write("of the child\n");
    } catch (const Error& error) {
      file.reset();
      if (std::string(error.what()).find("opened before a fork()") != std::string::npos && is_in_use(path)) return;
    }
    ::_exit(1);
  })));
  CHECK(is_in_use(path));
  CHECK(content_of(path) == "whole\n");
}

TEST_CASE("While a thread waits for the reader of a pipe, another one can fork it") {
  const Folder folder;
  const std::string path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  std::thread writer([&] { OutputFile("Logger", path, FileMode::APPEND, Writers::ONE).write("x"); });
  CHECK(test::ended_well(test::status_of_child([&] {
    if (content_of(path) != "x") ::_exit(1);
  })));
  writer.join();
}

TEST_CASE("Who opens a file that is in use for a moment waits, and writes the one that is at its path then") {
  for (const bool is_renamed : {false, true}) {
    CAPTURE(is_renamed);
    const Folder folder;
    const std::string path = folder / "log";
    std::ofstream(path) << "x\n";
    std::optional<FileLock> lock(std::in_place, path);
    const int seen = ::inotify_init1(IN_CLOEXEC);
    REQUIRE(::inotify_add_watch(seen, path.c_str(), IN_OPEN) >= 0);
    std::thread other([&] {
      char events[1024];
      if (::read(seen, events, sizeof events) > 0 && is_renamed) fs::rename(path, folder / "aside");
      lock.reset();
    });
    OutputFile file("Logger", path, FileMode::APPEND, Writers::ONE);
    other.join();
    ::close(seen);
    file.write("y\n");
    CHECK(content_of(path) == (is_renamed ? "y\n" : "x\ny\n"));
  }
}

TEST_CASE("A file without a name can be written by a path that leads to it, as /dev/stdout may") {
  const Folder folder;
  const std::string path = folder / "unlinked";
  const int opened = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(::unlink(path.c_str()) == 0);
  const std::string link = "/proc/self/fd/" + std::to_string(opened);
  OutputFile file("Logger", link, FileMode::APPEND, Writers::ONE);
  file.write("x");
  CHECK_FALSE(file.is_removed());
  CHECK(content_of(link) == "x");
  ::close(opened);
}

TEST_CASE("A file that is overwritten is empty, and one that is created must be new") {
  const Folder folder;
  const std::string path = folder / "log";
  std::ofstream(path) << "before\n";
  CHECK_THROWS_WITH_AS(OutputFile("Logger", path, FileMode::CREATE, Writers::ONE), doctest::Contains("exists"),
                       ConfigError);
  CHECK(content_of(path) == "before\n");
  const OutputFile file("Logger", path, FileMode::OVERWRITE, Writers::ONE);
  CHECK(file.size() == 0);
}

TEST_CASE("A file that somebody writes is not set aside") {
  const Folder folder;
  const std::string path = folder / "log";
  OutputFile file("First", path, FileMode::CREATE, Writers::ONE);
  CHECK_THROWS_WITH_AS(set_aside("Second", path), doctest::Contains(kInUse), ConfigError);
  CHECK(fs::exists(path));
  file.close();
  CHECK(set_aside("Second", path) == path + ".1");
}

TEST_CASE("Who looks whether a pipe is in use does not open it") {
  const Folder folder;
  const std::string path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int seen = ::inotify_init1(IN_NONBLOCK);
  REQUIRE(::inotify_add_watch(seen, path.c_str(), IN_OPEN | IN_CLOSE) >= 0);
  CHECK(FileLock(path).state() == FileLock::State::GONE);
  char events[1024];
  CHECK(::read(seen, events, sizeof events) < 0);
  ::close(seen);
}

TEST_CASE("A file whose name cannot become longer is an error of its owner's that says so") {
  const Folder folder;
  const std::string path = folder / std::string(254, 'x');
  std::ofstream(path) << "x";
  CHECK_THROWS_WITH_AS(set_aside("Logger", path), doctest::Contains("cannot be renamed to"), ConfigError);
}

}  // namespace
}  // namespace composer::util::output_file_test
