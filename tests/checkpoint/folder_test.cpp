#include "composer/checkpoint/folder.h"

#include <cerrno>
#include <csignal>
#include <fstream>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>

#include "composer/core/error.h"

namespace composer::saving {
namespace {

namespace fs = std::filesystem;

struct Scratch {
  Scratch() {
    fs::remove_all(path);
    fs::create_directories(path.parent_path());
  }
  ~Scratch() { fs::remove_all(path); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  fs::path path = fs::temp_directory_path() / join("composer-folder-", getpid()) / "ck";
};

// Calls the system until the n-th call (from 0), which fails, or ends the process before or in the middle of it.
class Faulty final : public FileSystem {
 public:
  enum class Kind : std::uint8_t { NONE, FAIL, DIE_BEFORE, DIE_AFTER };
  Faulty(Kind kind, int at, int code = EIO) : kind_(kind), at_(at), code_(code) {}
  int calls() const { return calls_; }

  void make_folder(const Path& path) override {
    around(path, [&] { FileSystem::make_folder(path); });
  }
  int create(const Path& path) override {
    int file = -1;
    around(path, [&] { file = FileSystem::create(path); });
    return file;
  }
  void write(int file, const Path& path, const void* data, std::size_t size) override {
    if (calls_ == at_ && kind_ != Kind::NONE) FileSystem::write(file, path, data, size / 2);
    around(path, [&] { FileSystem::write(file, path, data, size); });
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
    around(to, [&] { FileSystem::rename(from, to); });
  }
  void exchange(const Path& a, const Path& b) override {
    around(b, [&] { FileSystem::exchange(a, b); });
  }
  void make_link(const Path& target, const Path& path) override {
    around(path, [&] { FileSystem::make_link(target, path); });
  }
  void remove(const Path& path) override {
    around(path, [&] { FileSystem::remove(path); });
  }

 private:
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

std::string content(int batch, const std::string& file) {
  return file + std::string(1000, static_cast<char>('a' + batch));
}

void write(const fs::path& path, int batch, FileSystem& files, const std::string& name) {
  CheckpointFolder folder(path, "run", files);
  Manifest manifest;
  manifest.name = name;
  manifest.run_name = "r";
  manifest.run_id = "run";
  manifest.id = std::to_string(batch);
  manifest.time.batch = batch;
  std::vector<NewFile> all;
  for (const char* file : {"model.safetensors", "state.safetensors"})
    all.push_back({file, [=](const Sink& sink) {
                     const std::string text = content(batch, file);
                     sink(text.data(), 300);
                     sink(text.data() + 300, text.size() - 300);
                   }});
  folder.write(manifest, all, "latest");
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The batch of the checkpoint that a run would go on from, all of whose files are those of that batch.
int whole_latest(const fs::path& path) {
  const auto found = find_latest(path, "latest");
  if (!found) return -1;
  const int batch = static_cast<int>(found->manifest.time.batch);
  CHECK(found->manifest.id == std::to_string(batch));
  for (const char* file : {"model.safetensors", "state.safetensors"})
    CHECK(text_of(found->path / file) == content(batch, file));
  return batch;
}

int calls_of_one_save(const std::string& name) {
  const Scratch scratch;
  FileSystem real;
  write(scratch.path, 1, real, "ba1");
  Faulty counting(Faulty::Kind::NONE, -1);
  write(scratch.path, 2, counting, name);
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

TEST_CASE("each call of a save fails with each errno: the error is told, and the old or the new checkpoint is whole") {
  for (const std::string name : {"ba2", "ba1"}) {  // a new one, and one in the place of the old
    const int calls = calls_of_one_save(name);
    REQUIRE(calls > 15);
    for (const int code : {ENOSPC, EIO, EROFS, EDQUOT, ENOENT, EACCES}) {
      for (int at = 0; at < calls; ++at) {
        CAPTURE(at);
        const Scratch scratch;
        FileSystem real;
        write(scratch.path, 1, real, "ba1");
        Faulty faulty(Faulty::Kind::FAIL, at, code);
        CHECK_THROWS_AS(write(scratch.path, 2, faulty, name), FileError);
        const int latest = whole_latest(scratch.path);
        CHECK((latest == 1 || latest == 2));
        write(scratch.path, 3, real, "ba3");  // and nothing is in the way of the next
        CHECK(whole_latest(scratch.path) == 3);
      }
    }
  }
}

TEST_CASE("the process dies before and after each call of a save: the old or the new checkpoint is whole") {
  for (const std::string name : {"ba2", "ba1"}) {
    const int calls = calls_of_one_save(name);
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
          write(scratch.path, 2, faulty, name);
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
      }
    }
    CHECK(seen == std::set<int>{1, 2});
  }
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
  m.metrics = {{"eval/a", 0.25}, {"eval/b", HUGE_VAL}};
  m.files = {{"model.safetensors", 12, "xxh3:0"}};
  const std::string text = m.to_json();
  CHECK(Manifest::parse(text, "here").to_json() == text);
  CHECK(Manifest::parse(text, "here").metrics.at("eval/b") == HUGE_VAL);
  std::string newer = text;
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 2");
  try {
    Manifest::parse(newer, "here");
    FAIL("it was read");
  } catch (const CheckpointError& error) {
    CHECK(std::string(error.what()).find("use a newer one") != std::string::npos);
  }
}

}  // namespace
}  // namespace composer::saving
