// Files that grow have one writer, whoever opens them, however and when; and a file that has one is not renamed.
#include "composer/util/output_file.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <sys/inotify.h>
#include <sys/stat.h>

#include "composer/core/error.h"
#include "composer/util/file_lock.h"
#include "composer/util/set_aside.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

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
  OutputFile first("First", path, FileMode::CREATE);
  first.write("half a line");
  for (const std::string& name : {path, link})
    for (const FileMode mode : {FileMode::APPEND, FileMode::OVERWRITE})
      CHECK_THROWS_WITH_AS(OutputFile("Second", name, mode), doctest::Contains(kInUse), ConfigError);
  CHECK(content_of(path) == "half a line");
  first.close();
  OutputFile second("Second", link, FileMode::APPEND);
  CHECK(content_of(path) == "half a line\n");
  CHECK_THROWS_WITH_AS(OutputFile("Third", path, FileMode::OVERWRITE), doctest::Contains(kInUse), ConfigError);
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
          const OutputFile file("Logger", path, FileMode::APPEND);
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

TEST_CASE("A file that is overwritten is empty, and one that is created must be new") {
  const Folder folder;
  const std::string path = folder / "log";
  std::ofstream(path) << "before\n";
  CHECK_THROWS_WITH_AS(OutputFile("Logger", path, FileMode::CREATE), doctest::Contains("exists"), ConfigError);
  CHECK(content_of(path) == "before\n");
  const OutputFile file("Logger", path, FileMode::OVERWRITE);
  CHECK(file.size() == 0);
}

TEST_CASE("A file that somebody writes is not set aside") {
  const Folder folder;
  const std::string path = folder / "log";
  OutputFile file("First", path, FileMode::CREATE);
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
