#include "composer/checkpoint/folder.h"

#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include <sys/stat.h>
#include <sys/wait.h>

#include "composer/core/error.h"
#include "tests/checkpoint/checkpoints.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/warnings.h"

namespace composer::saving::folder_test {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::Scratch;
using test::text_of;
using test::whole_latest;
using test::write;

// Calls the system until the n-th call (from 0), which fails, or ends the process before or in the middle of it.
class Faulty final : public FileSystem {
 public:
  enum class Kind : std::uint8_t { NONE, FAIL, DIE_BEFORE, DIE_AFTER };
  Faulty(Kind kind, int at, int code = EIO) : kind_(kind), at_(at), code_(code) {}
  int calls() const { return calls_; }
  bool can_exchange = true;
  Path unmovable = {};   // as a folder of a lower layer of an overlay
  bool queries = false;  // calls that only read count, too

  Type type(const Path& path) override {
    query(path);
    return FileSystem::type(path);
  }
  std::vector<Item> list(const Path& path) override {
    query(path);
    return FileSystem::list(path);
  }
  std::string read(const Path& path, std::uint64_t most) override {
    query(path);
    return FileSystem::read(path, most);
  }
  std::uint64_t size(const Path& path) override {
    query(path);
    return FileSystem::size(path);
  }
  Path canonical(const Path& path) override {
    query(path);
    return FileSystem::canonical(path);
  }

  void make_folder(const Path& path) override {
    around(path, [&] { FileSystem::make_folder(path); });
  }
  int create(const Path& path) override {
    int file = -1;
    around(path, [&] { file = FileSystem::create(path); });
    return file;
  }
  void write(int file, const Path& path, std::uint64_t offset, const void* data, std::size_t size) override {
    if (calls_ == at_ && kind_ != Kind::NONE) FileSystem::write(file, path, offset, data, size / 2);
    around(path, [&] { FileSystem::write(file, path, offset, data, size); });
  }
  void start_sync(int file, const Path& path, std::uint64_t offset, std::uint64_t size) override {
    around(path, [&] { FileSystem::start_sync(file, path, offset, size); });
  }
  void sync(int file, const Path& path) override {
    around(path, [&] { FileSystem::sync(file, path); });
  }
  void close(int file, const Path& path) override {
    around(path, [&] { FileSystem::close(file, path); });
  }
  void sync_folder(const Path& path) override {
    around(path, [&] { FileSystem::sync_folder(path); });
  }
  void rename(const Path& from, const Path& to) override {
    if (from == unmovable)
      throw FileError("could not rename to", to, std::make_error_code(std::errc::cross_device_link));
    around(to, [&] { FileSystem::rename(from, to); });
  }
  bool rename_if_free(const Path& from, const Path& to) override {
    bool renamed = false;
    around(to, [&] { renamed = FileSystem::rename_if_free(from, to); });
    return renamed;
  }
  bool exchange(const Path& a, const Path& b) override {
    if (!can_exchange) return false;
    around(b, [&] { FileSystem::exchange(a, b); });
    return true;
  }
  bool make_link(const Path& target, const Path& path) override {
    around(path, [&] { FileSystem::make_link(target, path); });
    return true;
  }
  void remove(const Path& path) override {
    around(path, [&] { FileSystem::remove(path); });
  }

 private:
  void query(const Path& path) {
    if (queries) around(path, [] {});
  }
  template <class F>
  void around(const Path& path, F&& call) {
    const bool now = calls_++ == at_;
    if (now && kind_ == Kind::FAIL)
      throw FileError("made to fail", path, std::error_code(code_, std::generic_category()));
    if (now && kind_ == Kind::DIE_BEFORE) ::kill(::getpid(), SIGKILL);
    call();
    if (now && kind_ == Kind::DIE_AFTER) ::kill(::getpid(), SIGKILL);
  }

  Kind kind_;
  int at_, code_, calls_ = 0;
};

// Of a checkpoint after "ba1".
struct Save {
  std::string name;
  bool can_exchange = true;
  bool movable = true;
};
// A new one, and three in the place of the old
const std::vector<Save> kSaves = {{"ba2"}, {"ba1"}, {"ba1", false}, {"ba1", false, false}};

void set_up(Faulty& faulty, const Save& save, const fs::path& folder) {
  faulty.can_exchange = save.can_exchange;
  if (!save.movable) faulty.unmovable = folder / save.name;
}

int calls_of(const Save& save, bool queries = false) {
  const Scratch scratch;
  FileSystem real;
  write(scratch.path, 1, real, "ba1");
  Faulty counting(Faulty::Kind::NONE, -1);
  set_up(counting, save, scratch.path);
  counting.queries = queries;
  write(scratch.path, 2, counting, save.name);
  return counting.calls();
}

TEST_CASE("a second checkpoint becomes the latest, and one of the same name takes the place of the first") {
  const Scratch scratch;
  FileSystem real;
  CHECK_FALSE(find_latest(scratch.path, "latest"));
  write(scratch.path, 1, real, "ba1");
  CHECK(whole_latest(scratch.path) == 1);
  write(scratch.path, 2, real, "sub/ba2");
  CHECK(whole_latest(scratch.path) == 2);
  CHECK(list_checkpoints(scratch.path).size() == 2);
  write(scratch.path, 3, real, "ba1");
  CHECK(whole_latest(scratch.path) == 3);
  CHECK(list_checkpoints(scratch.path).size() == 2);
}

TEST_CASE(
    "on a disk that cannot exchange two folders, one takes the place of the other; what a kill has left of that goes") {
  const Scratch scratch;
  FileSystem real;
  write(scratch.path, 1, real, "ba1");
  Faulty slow(Faulty::Kind::NONE, -1);
  slow.can_exchange = false;
  write(scratch.path, 2, slow, "ba1");
  CHECK(whole_latest(scratch.path) == 2);
  CHECK(list_checkpoints(scratch.path).size() == 1);
  fs::copy(scratch.path / "ba1", scratch.path / "ba1.new", fs::copy_options::recursive);
  write(scratch.path, 3, slow, "ba1");
  CHECK(whole_latest(scratch.path) == 3);
  CHECK(list_checkpoints(scratch.path).size() == 1);
  fs::copy(scratch.path / "ba1", scratch.path / "ba1.new", fs::copy_options::recursive);
  write(scratch.path, 4, real, "ba4");
  write(scratch.path, 5, real, "ba4.new");  // a name like any other
  CHECK(CheckpointFolder(scratch.path, "run", real).remove({"ba1", "ba4"}).empty());
  CHECK(whole_latest(scratch.path) == 5);
  CHECK(list_checkpoints(scratch.path).size() == 1);
}

TEST_CASE("on a disk without links the newest is found all the same") {
  struct WithoutLinks final : FileSystem {
    bool make_link(const Path&, const Path&) override { return false; }
  } files;
  const Scratch scratch;
  write(scratch.path, 1, files, "ba1");
  write(scratch.path, 2, files, "ba2");
  CHECK_FALSE(fs::exists(fs::symlink_status(scratch.path / "latest")));
  CHECK(whole_latest(scratch.path) == 2);
}

TEST_CASE("a folder where folders cannot be renamed is found before anything is saved in it") {
  struct WithoutRename final : FileSystem {
    bool rename_if_free(const Path&, const Path& to) override {
      throw FileError("could not rename to", to, std::make_error_code(std::errc::function_not_supported));
    }
  } files;
  const Scratch scratch;
  CheckpointFolder folder(scratch.path, "run", files);
  CHECK_THROWS_AS(folder.probe(), fs::filesystem_error);
  CHECK(fs::is_empty(scratch.path));
  FileSystem real;
  CheckpointFolder(scratch.path, "run", real).probe();
  CHECK(fs::is_empty(scratch.path));
}

TEST_CASE("the umask of the program decides who may write into checkpoints") {
  const Scratch scratch;
  FileSystem real;
  for (const mode_t mask : {mode_t{002}, mode_t{022}, mode_t{077}}) {
    const mode_t before = ::umask(mask);
    const std::string name = "ba" + std::to_string(mask);
    write(scratch.path, 1, real, name);
    ::umask(before);
    CHECK(fs::status(scratch.path / name).permissions() == static_cast<fs::perms>(0777 & ~mask));
    CHECK(fs::status(scratch.path / name / Manifest::kFileName).permissions() == static_cast<fs::perms>(0666 & ~mask));
  }
}

TEST_CASE("what another run has written is replaced only if that was asked for") {
  const Scratch scratch;
  FileSystem real;
  write(scratch.path, 1, real, "ba1");
  CheckpointFolder other(scratch.path, "other run", real);
  Manifest manifest;
  manifest.name = "ba1";
  manifest.run_id = "other run";
  CHECK_THROWS_AS(other.write(manifest, {}, "latest"), CheckpointError);
  CHECK(whole_latest(scratch.path) == 1);
  other.write(manifest, {}, "latest", /*overwrite=*/true);
  CHECK(open_checkpoint(scratch.path / "latest").manifest.run_id == "other run");
}

std::size_t temporary_folders(const fs::path& path) {
  std::size_t number = 0;
  for (const auto& entry : fs::directory_iterator(path))
    number +=
        entry.is_directory() && !entry.is_symlink() && entry.path().filename().string().starts_with(".tmp-") ? 1 : 0;
  return number;
}

std::size_t temporary_paths(const fs::path& path) {  // links, too
  std::size_t number = 0;
  for (const auto& entry : fs::directory_iterator(path))
    number += entry.path().filename().string().starts_with(".tmp-") ? 1 : 0;
  return number;
}

TEST_CASE("each call of a save fails with each errno: the error is told, and the old or the new checkpoint is whole") {
  for (const Save& save : kSaves) {
    const int calls = calls_of(save, /*queries=*/true);
    REQUIRE(calls > 20);
    for (const int code : {ENOSPC, EIO, EROFS, EDQUOT, ENOENT, EACCES, ESTALE}) {
      for (int at = 0; at < calls; ++at) {
        CAPTURE(at);
        const Scratch scratch;
        FileSystem real;
        write(scratch.path, 1, real, "ba1");
        Faulty faulty(Faulty::Kind::FAIL, at, code);
        set_up(faulty, save, scratch.path);
        faulty.queries = true;
        CHECK_THROWS_AS(write(scratch.path, 2, faulty, save.name), std::exception);
        if (save.name != "ba1") CHECK(temporary_paths(scratch.path) == 0);
        const int latest = whole_latest(scratch.path);
        CHECK((latest == 1 || latest == 2));
        write(scratch.path, 3, real, "ba3");  // and nothing is in the way of the next
        CHECK(whole_latest(scratch.path) == 3);
        write(scratch.path, 4, real, save.name);
        CHECK(whole_latest(scratch.path) == 4);
      }
    }
  }
}

TEST_CASE("the process dies before and after each call of a save: the old or the new checkpoint is whole") {
  for (const Save& save : kSaves) {
    const int calls = calls_of(save);
    std::set<int> seen;
    for (const auto kind : {Faulty::Kind::DIE_BEFORE, Faulty::Kind::DIE_AFTER}) {
      for (int at = 0; at < calls; ++at) {
        CAPTURE(at);
        const Scratch scratch;
        FileSystem real;
        write(scratch.path, 1, real, "ba1");
        const pid_t child = ::fork();
        if (child == 0) {
          Faulty faulty(kind, at);
          set_up(faulty, save, scratch.path);
          write(scratch.path, 2, faulty, save.name);
          ::_exit(0);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        REQUIRE(WIFSIGNALED(status));
        const int latest = whole_latest(scratch.path);
        CHECK((latest == 1 || latest == 2));
        seen.insert(latest);
        CheckpointFolder again(scratch.path, "run", real);
        again.remove_leftovers();
        for (const auto& entry : fs::directory_iterator(scratch.path))
          CHECK_FALSE(entry.path().filename().string().starts_with(".tmp-"));
        write(scratch.path, 3, real, "ba3");
        CHECK(whole_latest(scratch.path) == 3);
        write(scratch.path, 4, real, save.name);
        CHECK(whole_latest(scratch.path) == 4);
      }
    }
    CHECK(seen == std::set<int>{1, 2});
  }
}

TEST_CASE("what a process that died in its first save has left is removed by another run, whose own is not") {
  const int calls = calls_of({"ba2"});
  bool any = false;
  for (int at = 0; at < calls; ++at) {
    CAPTURE(at);
    const Scratch scratch;
    const pid_t child = ::fork();
    if (child == 0) {
      Faulty faulty(Faulty::Kind::DIE_AFTER, at);
      write(scratch.path, 1, faulty, "ba1");
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!fs::exists(scratch.path)) continue;
    any = any || temporary_folders(scratch.path) > 0;
    FileSystem real;
    CheckpointFolder(scratch.path, "other", real).remove_leftovers();
    CHECK(temporary_folders(scratch.path) == 0);
  }
  CHECK(any);
}

TEST_CASE("a folder that is being written, whichever run and process does it, is no leftover") {
  const Scratch scratch;
  FileSystem real;
  CheckpointFolder folder(scratch.path, "run", real);
  std::size_t during = 0;
  std::vector<NewFile> files = test::files_of(1);
  files.push_back({"last", [&](const PlacedSink&) {
                     const pid_t child = ::fork();
                     if (child == 0) {
                       for (const char* run : {"run", "other"})
                         CheckpointFolder(scratch.path, run, real).remove_leftovers();
                       ::_exit(0);
                     }
                     ::waitpid(child, nullptr, 0);
                     during = temporary_folders(scratch.path);
                     return std::string();
                   }});
  folder.write(test::manifest_of(1, "ba1"), files, "latest");
  CHECK(during == 1);
  CHECK(whole_latest(scratch.path) == 1);
}

TEST_CASE("what is no leftover by its name stays") {
  const Scratch scratch;
  FileSystem real;
  for (const char* name : {".tmp-", ".tmp-1", ".tmp-1-2", ".tmp-mine", ".tmp-run-12-x", "run-1-2"})
    fs::create_directories(scratch.path / name);
  fs::create_directories(scratch.path / ".tmp-a-run-1-2" / "inside");
  CheckpointFolder(scratch.path, "run", real).remove_leftovers();
  CHECK(fs::exists(scratch.path / ".tmp-1-2"));
  CHECK(fs::exists(scratch.path / ".tmp-run-12-x"));
  CHECK(std::distance(fs::directory_iterator(scratch.path), fs::directory_iterator()) == 6);
}

TEST_CASE("a large file is given to the disk while it is written, and a disk that refuses is an error") {
  const std::string piece(3 << 20, 'x');
  const auto large = [&](const PlacedSink& sink) {
    for (std::uint64_t i = 1; i < 8; ++i) sink(i * piece.size(), piece.data(), piece.size());
    sink(0, piece.data(), piece.size());
    return std::string();
  };
  struct Counting final : FileSystem {
    void start_sync(int, const Path& path, std::uint64_t offset, std::uint64_t size) override {
      if (refuses) throw FileError("made to fail", path, std::error_code(EIO, std::generic_category()));
      CHECK(offset == end);
      end = offset + size;
    }
    bool refuses = false;
    std::uint64_t end = 0;
  } files;
  const Scratch scratch;
  CheckpointFolder folder(scratch.path, "run", files);
  folder.write(test::manifest_of(1, "ba1"), {{"large", large}}, "latest");
  CHECK(files.end == 24 << 20);
  files.refuses = true;
  CHECK_THROWS_AS(folder.write(test::manifest_of(2, "ba2"), {{"large", large}}, "latest"), FileError);
  CHECK(find_latest(scratch.path, "latest")->manifest.time.batch == 1);
  CHECK(temporary_folders(scratch.path) == 0);
}

TEST_CASE("those that the disk does not let go are told, and the others are gone") {
  const Scratch scratch;
  FileSystem real;
  for (const int batch : {1, 2, 3}) write(scratch.path, batch, real, join("ba", batch));
  Faulty faulty(Faulty::Kind::FAIL, 0);
  CheckpointFolder folder(scratch.path, "run", faulty);
  CHECK(folder.remove({"ba1", "nobody", "ba2"}) == std::vector<std::string>{"ba1"});
  CHECK(fs::exists(scratch.path / "ba1"));
  CHECK_FALSE(fs::exists(scratch.path / "ba2"));
  CHECK(folder.remove({"ba1"}).empty());
  CHECK(list_checkpoints(scratch.path).size() == 1);
  CHECK(temporary_folders(scratch.path) == 0);
}

TEST_CASE("what came with a container's image, and cannot be renamed, is replaced and deleted where it is") {
  struct Overlay final : FileSystem {
    std::set<Path> lower;
    void rename(const Path& from, const Path& to) override {
      if (lower.contains(from))
        throw FileError("could not rename to", to, std::make_error_code(std::errc::cross_device_link));
      FileSystem::rename(from, to);
    }
    bool exchange(const Path& a, const Path& b) override { return !lower.contains(b) && FileSystem::exchange(a, b); }
    void remove(const Path& path) override {
      FileSystem::remove(path);
      lower.erase(path);
    }
  } files;
  const Scratch scratch;
  for (const int batch : {1, 2, 3}) write(scratch.path, batch, files, join("ba", batch));
  files.lower = {scratch.path / "ba1", scratch.path / "ba2"};
  write(scratch.path, 4, files, "ba1");
  CHECK(whole_latest(scratch.path) == 4);
  write(scratch.path, 5, files, "ba1");
  CHECK(whole_latest(scratch.path) == 5);
  CHECK(CheckpointFolder(scratch.path, "run", files).remove({"ba2", "ba3"}).empty());
  CHECK(list_checkpoints(scratch.path).size() == 1);
  CHECK(temporary_folders(scratch.path) == 0);
}

TEST_CASE("a folder of somebody else is not taken for the remains of a checkpoint") {
  const Scratch scratch;
  FileSystem real;
  write(scratch.path, 1, real, "ba1");
  fs::rename(scratch.path / "ba1", scratch.path / "ba1.new");
  fs::create_directories(scratch.path / "ba1");
  std::ofstream(scratch.path / "ba1/notes.txt") << "x";
  CHECK_THROWS_AS(write(scratch.path, 2, real, "ba1"), CheckpointError);
  CHECK(fs::exists(scratch.path / "ba1/notes.txt"));
}

TEST_CASE("Only checkpoints of this run below the folder are deleted, whatever names are given") {
  const Scratch scratch;
  FileSystem real;
  write(scratch.path, 1, real, "ba1");
  write(scratch.path, 2, real, "sub/ba2");
  CheckpointFolder(scratch.path, "other", real).write(test::manifest_of(3, "ba3", "other"), test::files_of(3), "");
  write(scratch.folder / "victim", 4, real, "ba4");  // of the same run, in another folder
  fs::create_directories(scratch.path / "plots/inside");
  std::ofstream(scratch.path / "notes.txt") << "x";
  write(scratch.path, 5, real, "ba5");
  std::ofstream(scratch.path / "ba5/manifest.json") << "damaged";
  fs::create_directory_symlink(scratch.folder / "victim/ba4", scratch.path / "ba6");
  const test::Warnings warnings;
  CheckpointFolder folder(scratch.path, "run", real);
  const std::vector<std::string> none;
  CHECK(folder.remove({"../victim/ba4", "../victim", (scratch.folder / "victim").string(), "plots", "notes.txt", "ba3",
                       "ba5", "ba6", "sub", ".", "", "latest", "sub/../ba1"}) == none);
  for (const char* stays : {"ck/ba1", "ck/sub/ba2", "ck/ba3", "ck/ba5", "ck/ba6", "ck/plots/inside", "ck/notes.txt",
                            "ck/latest", "victim/ba4/manifest.json"})
    CHECK_MESSAGE(fs::exists(scratch.folder / stays), stays);
  CHECK(warnings.say("../victim/ba4 is not deleted"));
  CHECK(warnings.say("ba5 is not deleted"));
  CHECK(folder.remove({"ba1", "sub/ba2"}) == none);
  CHECK_FALSE(fs::exists(scratch.path / "ba1"));
  CHECK_FALSE(fs::exists(scratch.path / "sub/ba2"));
}

TEST_CASE("A checkpoint inside another one is refused") {
  const Scratch scratch;
  FileSystem real;
  write(scratch.path, 1, real, "a1");
  CHECK_THROWS_WITH_AS(write(scratch.path, 2, real, "a1/b/c"), doctest::Contains("lies inside the checkpoint"),
                       CheckpointError);
  CHECK(whole_latest(scratch.path) == 1);
}

TEST_CASE("a damaged newest checkpoint is left for the one before, with a warning") {
  const Scratch scratch;
  FileSystem real;
  for (const int batch : {1, 2}) write(scratch.path, batch, real, join("ba", batch));
  const fs::path manifest = scratch.path / "ba2" / Manifest::kFileName;
  const std::string good = text_of(manifest);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    std::ofstream(manifest) << bad;
    CHECK(whole_latest(scratch.path) == 1);
  }
  for (std::size_t length = 0; length < good.size(); length += 7) {
    std::ofstream(manifest) << good.substr(0, length);
    CHECK(whole_latest(scratch.path) == 1);
  }
  std::ofstream(manifest) << good;
  CHECK(whole_latest(scratch.path) == 2);
  fs::resize_file(scratch.path / "ba2" / "model.safetensors", 10);
  CHECK(whole_latest(scratch.path) == 1);
}

TEST_CASE("a manifest comes back as it was, and one of a newer version is refused politely") {
  Manifest m;
  m.id = "x";
  m.name = "ep1-ba2";
  m.run_name = "a \"name\"\n";
  m.time.batch = 2;
  m.time.total_wct = Seconds(0.1);
  m.number = 7;
  m.fit = 1;
  m.metrics = {{"eval/a", 0.25}, {"eval/b", HUGE_VAL}};
  m.files = {{"model.safetensors", 12, "xxh3:0"}};
  const std::string text = m.to_json();
  CHECK(Manifest::parse(text, "here").to_json() == text);
  CHECK(Manifest::parse(text, "here").metrics.at("eval/b") == HUGE_VAL);
  CHECK(Manifest::parse(text, "here").number == 7);
  CHECK(Manifest::parse(text, "here").fit == 1);
  std::string damaged = text;
  damaged.replace(damaged.find("\"version\": 4"), 12, "\"version\": 5");
  CHECK_THROWS_WITH_AS(Manifest::parse(damaged, "here"), doctest::Contains("is damaged"), CheckpointError);
  m.version = Manifest::kVersion + 1;
  const std::string newer = m.to_json();
  try {
    Manifest::parse(newer, "here");
    FAIL("it was read");
  } catch (const CheckpointError& error) {
    CHECK(std::string(error.what()).find("use a newer libcomposer") != std::string::npos);
  }
}

TEST_CASE("A manifest nested too deep is refused") {
  const std::string deep = std::string(50'000, '[') + std::string(50'000, ']');
  CHECK_THROWS_WITH_AS(Manifest::parse(R"({"format":"composer checkpoint","version":)" + deep + "}", "here"),
                       doctest::Contains("nested"), CheckpointError);
}

}  // namespace
}  // namespace composer::saving::folder_test
