// Copies of checkpoints in a bucket: uploaded, replaced and deleted, without a trainer.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/remote/checkpoints.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/fake_s3.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"

namespace composer::remote_mirror_test {
namespace {

namespace fs = std::filesystem;
using saving::Manifest;
using test::contains;
using test::error_of;
using test::HttpCall;
using test::HttpReply;

// A save folder and the place that it is copied to. Checkpoints have two files, whose contents begin with their id.
struct Machine {
  explicit Machine(std::string uri = "s3://b/runs", std::size_t most_first_uploads = 512)
      : mirror(make_remote_mirror({.uri = std::move(uri),
                                   .run_name = "tiny",
                                   .most_first_uploads = most_first_uploads,
                                   .store = {.http = {.retry = {.attempts = 2, .first_pause = {}}}}})) {}

  std::string write(const std::string& name, std::int64_t batch, const std::string& id) {
    Manifest manifest;
    manifest.id = id, manifest.run_name = "tiny", manifest.run_id = "run", manifest.name = name;
    manifest.time.batch = batch;
    saving::CheckpointFolder checkpoints(path(), "run", saving::real_files());
    const auto file = [&](const char* file) {
      return saving::NewFile{file, [id](const saving::PlacedSink& sink) {
                               const std::string text = id + std::string(100, '.');
                               sink(0, text.data(), text.size());
                               return "crc:" + id;
                             }};
    };
    checkpoints.write(manifest, {file("model.safetensors"), file("state.safetensors")}, "");
    return name;
  }
  void save(const std::string& name, std::int64_t batch, const std::string& id,
            const std::vector<std::string>& retired = {}) {
    write(name, batch, id);
    mirror->saved(path(), name, retired);
  }
  fs::path path() const { return folder / "checkpoints"; }

  test::Folder folder;
  std::shared_ptr<saving::Mirror> mirror;
};

// A client of the bucket that reads the newest checkpoint, and where it downloads it to.
std::string read_newest(const fs::path& folder) {
  const auto store = net::open_store("s3://b/runs", {.http = {.retry = {.attempts = 1}}});
  const auto find = [&] { return find_newest(*store, [](const RemoteCheckpoint&) { return true; }); };
  const auto newest = find();
  if (!newest) return "none";
  const fs::path path = download_unreplaced(*store, *newest, find, folder / "save");
  const auto found = saving::open_checkpoint(path);
  for (const auto& file : found.manifest.files) {
    std::string text;
    std::ifstream(path / file.name) >> text;
    if (!text.starts_with(found.manifest.id)) return "mixed: " + found.manifest.id + ", " + text;
  }
  return found.manifest.id + " as " + path.filename().string();
}

struct Bucket {
  std::size_t checkpoint_files() const {
    std::size_t all = 0;
    for (const auto& [key, content] : server.objects()) all += contains(key, ".owner-") ? 0 : 1;
    return all;
  }
  test::FakeS3 server;
  test::Variables variables{test::variables_of(server)};
};

// Of all threads.
class AllWarnings {
 public:
  AllWarnings()
      : before_(redirect_warnings([this](const std::string& text) {
          const std::lock_guard lock(mutex_);
          texts_.push_back(text);
        })) {}
  ~AllWarnings() { redirect_warnings(before_); }
  AllWarnings(const AllWarnings&) = delete;
  AllWarnings& operator=(const AllWarnings&) = delete;
  std::vector<std::string> texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
  WarningSink before_;
};

struct Replaced {
  decltype(std::declval<const test::FakeS3&>().history()) history;  // what the bucket contained after each change
  std::size_t before;                                               // changes before the replacement
};

// The checkpoint "last", saved and uploaded twice.
Replaced replace_last(Machine& machine, const Bucket& bucket) {
  machine.save("last", 1, "old");
  machine.mirror->wait({});
  const std::size_t before = bucket.server.history().size();
  machine.save("last", 2, "new");
  machine.mirror->wait({});
  return {bucket.server.history(), before};
}

std::optional<HttpReply> refuse_deletions(const HttpCall& call) {
  if (call.method != "DELETE") return {};
  return HttpReply{403, "<Error><Code>AccessDenied</Code><Message>No</Message></Error>"};
}

}  // namespace

TEST_CASE("Deleting a checkpoint in a bucket deletes the files of its manifest, and none whose name begins alike") {
  Bucket bucket;
  const AllWarnings warnings;
  Machine machine;
  machine.mirror->begin(machine.path(), "run", {}, {});
  machine.save("ep1-ba10", 10, "a");
  machine.mirror->wait({});
  const std::vector<std::string> users = {"runs/ep1-ba10-notes.txt", "runs/ep1-ba10.txt",
                                          "runs/ep1-ba10/model.safetensors.index.json",
                                          "runs/ep1-ba10/manifest.json.txt", "runs/ep1-ba100/model.safetensors"};
  for (const std::string& key : users) bucket.server.set(key, "a user's");
  SUBCASE("of a whole one") {}
  SUBCASE("of an upload that was cut off") { bucket.server.erase("runs/ep1-ba10/manifest.json"); }
  machine.save("ep1-ba20", 20, "b", {"ep1-ba10"});
  machine.mirror->wait({});
  const auto objects = bucket.server.objects();
  for (const std::string& key : users) CHECK(objects.contains(key));
  for (const char* file : {"manifest.json", "model.safetensors", "state.safetensors"})
    CHECK_FALSE(objects.contains(std::string("runs/ep1-ba10/") + file));
  CHECK(machine.mirror->undeleted().empty());
}

TEST_CASE("What a killed process has left of a file in a remote folder is deleted with the checkpoint") {
  const test::Folder remote;
  const AllWarnings warnings;
  Machine machine("file://" + remote.path().string());
  machine.mirror->begin(machine.path(), "run", {}, {});
  machine.save("a", 1, "a");
  machine.mirror->wait({});
  std::ofstream(remote / "a/model.safetensors.tmp-1-2") << "half";
  machine.save("b", 2, "b", {"a"});
  machine.mirror->wait({});
  CHECK_FALSE(fs::exists(remote / "a"));
}

TEST_CASE("At each moment of a replacement, a reader gets the old checkpoint or the new one") {
  Bucket bucket;
  const AllWarnings warnings;
  const test::Folder reader;
  Machine machine;
  machine.mirror->begin(machine.path(), "run", {}, {});
  const auto [history, before] = replace_last(machine, bucket);
  CHECK(history.back().size() == 3);
  CHECK(history.size() >= before + 10);
  test::FakeS3 past;  // a bucket that stands still
  const test::Variables there(test::variables_of(past));
  for (std::size_t i = before; i < history.size(); ++i) {
    CAPTURE(i);
    for (const auto& [key, content] : past.objects()) past.erase(key);
    for (const auto& [key, content] : history[i]) past.set(key, content);
    const std::string read = read_newest(reader.path());
    CHECK((read == "old as last" || read == "new as last"));
    for (const char* uri : {"s3://b/runs/last", "s3://b/runs"}) {
      const auto found = saving::open_checkpoint(download_from(uri, reader / "load"));
      CHECK((found.manifest.id == "old" || found.manifest.id == "new"));
    }
  }
}

TEST_CASE("A checkpoint that is replaced while it is downloaded is downloaded again, as a whole") {
  Bucket bucket;
  const AllWarnings warnings;
  const test::Folder reader;
  Machine machine;
  machine.mirror->begin(machine.path(), "run", {}, {});
  machine.save("last", 1, "old");
  machine.mirror->wait({});
  const auto old = bucket.server.objects();
  machine.save("last", 2, "new");
  machine.mirror->wait({});
  const auto history = bucket.server.history();
  for (const auto& [key, content] : bucket.server.objects()) bucket.server.erase(key);
  for (const auto& [key, content] : old) bucket.server.set(key, content);
  const auto newest = [&] {
    return find_newest(*net::open_store("s3://b/runs"), [](const RemoteCheckpoint&) { return true; });
  };
  const auto store = net::open_store("s3://b/runs");
  const auto found = newest();
  REQUIRE(found);
  REQUIRE(found->manifest.id == "old");
  for (const auto& [key, content] : old) bucket.server.erase(key);
  for (const auto& [key, content] : history.back()) bucket.server.set(key, content);
  CHECK(contains(error_of([&] { download(*store, *found, reader / "save", "last"); }), "was replaced while it was"));
  CHECK_FALSE(fs::exists(reader / "save/last"));
  const fs::path path = download_unreplaced(*store, *found, newest, reader / "save");
  CHECK(saving::open_checkpoint(path).manifest.id == "new");
  for (const auto& [key, content] : history.back()) bucket.server.erase(key);
  CHECK(contains(error_of([&] { download_unreplaced(*store, *found, newest, reader / "save"); }),
                 "was replaced or deleted while it was downloaded"));
}

TEST_CASE("A replacement that was cut off is completed by the next start, from any moment") {
  Bucket bucket;
  const AllWarnings warnings;
  const test::Folder reader;
  Machine machine;
  machine.mirror->begin(machine.path(), "run", {}, {});
  const auto [history, before] = replace_last(machine, bucket);
  for (std::size_t i = before; i < history.size(); ++i) {
    CAPTURE(i);
    for (const auto& [key, content] : bucket.server.objects()) bucket.server.erase(key);
    for (const auto& [key, content] : history[i]) bucket.server.set(key, content);
    const auto next = make_remote_mirror({.uri = "s3://b/runs", .run_name = "tiny"});
    next->begin(machine.path(), "run", {"last"}, {});
    next->wait({});
    CHECK(read_newest(reader.path()) == "new as last");
    CHECK(bucket.checkpoint_files() == 3);
  }
}

TEST_CASE("Deleting a checkpoint deletes also what the cut-off replacement of it has left") {
  Bucket bucket;
  const AllWarnings warnings;
  Machine machine;
  machine.mirror->begin(machine.path(), "run", {}, {});
  machine.save("last", 1, "old");
  machine.mirror->wait({});
  for (const char* file : {"manifest.json", "model.safetensors", "state.safetensors"})
    bucket.server.set(std::string("runs/last/.new/") + file,
                      bucket.server.objects().at(std::string("runs/last/") + file));
  SUBCASE("complete") {}
  SUBCASE("or not") { bucket.server.erase("runs/last/.new/manifest.json"); }
  machine.save("next", 2, "new", {"last"});
  machine.mirror->wait({});
  for (const auto& [key, content] : bucket.server.objects()) CHECK_FALSE(contains(key, "/last/"));
}

TEST_CASE("Where nothing may be deleted, uploads succeed, and one warning names the permission") {
  Bucket bucket;
  const AllWarnings warnings;
  bucket.server.intercept(refuse_deletions);
  Machine machine;
  machine.mirror->begin(machine.path(), "run", {}, {});
  const auto deletions = [&] {
    int all = 0;
    for (const HttpCall& call : bucket.server.calls()) all += call.method == "DELETE" ? 1 : 0;
    return all;
  };
  machine.save("a", 1, "a");
  while (!bucket.server.objects().contains("runs/a/manifest.json"))  // what is deleted before is never uploaded
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  machine.save("b", 2, "b", {"a"});
  CHECK_NOTHROW(machine.mirror->wait({}));
  REQUIRE(warnings.texts().size() == 1);
  CHECK(contains(warnings.texts()[0], "the permission s3:DeleteObject"));
  CHECK(deletions() <= 2);  // of the first file, and of the owner's
  const int before = deletions();
  for (int i = 3; i < 9; ++i)
    machine.save(std::to_string(i), i, std::to_string(i), {i == 3 ? "b" : std::to_string(i - 1)});
  CHECK_NOTHROW(machine.mirror->wait({}));
  CHECK(warnings.texts().size() == 1);
  CHECK(deletions() == before + 1);                // of the owner's file
  CHECK(machine.mirror->undeleted().size() == 7);  // for another process to delete
}

TEST_CASE("Where nothing may be deleted, a checkpoint is replaced, and a reader gets the old one or the new one") {
  Bucket bucket;
  const AllWarnings warnings;
  const test::Folder reader;
  bucket.server.intercept(refuse_deletions);
  Machine machine;
  machine.mirror->begin(machine.path(), "run", {}, {});
  for (int i = 1; i < 4; ++i) {
    machine.save("last", i, std::to_string(i));
    CHECK_NOTHROW(machine.mirror->wait({}));
    CHECK(read_newest(reader.path()) == std::to_string(i) + " as last");
  }
  const auto history = bucket.server.history();
  test::FakeS3 past;
  const test::Variables there(test::variables_of(past));
  bool begun = false;
  for (std::size_t i = 0; i < history.size(); ++i) {
    CAPTURE(i);
    for (const auto& [key, content] : history[i]) past.set(key, content);
    const std::string read = read_newest(reader.path());
    begun = begun || read != "none";
    if (begun) CHECK(read.ends_with(" as last"));
  }
}

TEST_CASE("A deletion that fails for another reason is no failed upload, and is tried again after the next one") {
  Bucket bucket;
  const AllWarnings warnings;
  bucket.server.intercept([](const HttpCall& call) -> std::optional<HttpReply> {
    return call.method == "DELETE" ? std::optional(HttpReply{500}) : std::nullopt;
  });
  Machine machine;
  machine.mirror->begin(machine.path(), "run", {}, {});
  machine.save("a", 1, "a");
  while (!bucket.server.objects().contains("runs/a/manifest.json"))  // what is deleted before is never uploaded
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  machine.save("b", 2, "b", {"a"});
  CHECK_NOTHROW(machine.mirror->wait({}));
  REQUIRE(warnings.texts().size() == 1);
  CHECK(contains(warnings.texts()[0], "runs/a could not be deleted"));
  bucket.server.intercept({});
  machine.save("c", 3, "c");
  machine.mirror->wait({});
  CHECK(machine.mirror->undeleted().empty());
  CHECK_FALSE(bucket.server.objects().contains("runs/a/manifest.json"));
}

TEST_CASE("A start uploads every kept checkpoint, also if there are more than the queue has room for") {
  const test::Folder remote;
  const AllWarnings warnings;
  Machine machine("file://" + remote.path().string(), 3);
  std::vector<std::string> kept;
  for (int i = 0; i < 8; ++i) kept.push_back(machine.write("ba" + std::to_string(i), i, std::to_string(i)));
  SUBCASE("") {
    machine.mirror->begin(machine.path(), "run", kept, {});
    CHECK_NOTHROW(machine.mirror->wait({}));
    CHECK(warnings.texts().empty());
    for (const std::string& name : kept) CHECK(fs::exists(remote / name / "manifest.json"));
  }
  SUBCASE("and says which of them fail") {
    std::ofstream(remote / "ba1") << "in the way";
    machine.mirror->begin(machine.path(), "run", kept, {});
    const std::string error = error_of([&] { machine.mirror->wait({}); });
    CHECK(contains(error, "ba0 and 2 more: ba1: "));
    for (const std::string& name : kept) CHECK((name == "ba1" || fs::exists(remote / name / "manifest.json")));
  }
}

}  // namespace composer::remote_mirror_test
