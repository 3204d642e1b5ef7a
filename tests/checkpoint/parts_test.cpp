// A checkpoint that several ranks write appears whole or not at all, whoever fails, and when.
#include "composer/checkpoint/parts.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include "composer/checkpoint/part_writer.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "tests/checkpoint/golden.h"
#include "tests/formats/bytes.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/warnings.h"

namespace composer::saving::parts_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// From the n-th call on (from 0) every call that changes something fails: the process is dead.
class Dying final : public FileSystem {
 public:
  explicit Dying(int at) : at_(at) {}
  bool is_dead() const { return calls_ > at_; }

  void make_folder(const Path& path) override { live(path), FileSystem::make_folder(path); }
  int create(const Path& path) override { return live(path), FileSystem::create(path); }
  void write(int file, const Path& path, std::uint64_t offset, const void* data, std::size_t size) override {
    if (calls_ == at_) FileSystem::write(file, path, offset, data, size / 2);
    live(path), FileSystem::write(file, path, offset, data, size);
  }
  void sync(int file, const Path& path) override { live(path), FileSystem::sync(file, path); }
  void sync_folder(const Path& path) override { live(path), FileSystem::sync_folder(path); }
  void rename(const Path& from, const Path& to) override { live(to), FileSystem::rename(from, to); }
  bool rename_if_free(const Path& from, const Path& to) override {
    return live(to), FileSystem::rename_if_free(from, to);
  }
  bool exchange(const Path& a, const Path& b) override { return live(b), FileSystem::exchange(a, b); }
  bool make_link(const Path& target, const Path& path) override {
    return live(path), FileSystem::make_link(target, path);
  }
  void remove(const Path& path) override { live(path), FileSystem::remove(path); }

 private:
  void live(const Path& path) {
    if (calls_++ >= at_) throw FileError("dead", path, std::error_code(EIO, std::generic_category()));
  }

  int at_;
  std::atomic<int> calls_ = 0;
};

StateDict optimizer_of(const std::string& parameter, double value) {
  StateDict fields, states, optimizer, state;
  fields["exp_avg"] = at::full({40}, value);
  states[parameter] = fields;
  optimizer["class"] = std::string("Adam");
  optimizer["state"] = states;
  state["optimizer"] = optimizer;
  return state;
}

StateDict state_of_rank_0(double value) {
  StateDict model, state = optimizer_of("a", value);
  model["weight"] = at::full({3}, value);
  state["model"] = model;
  return state;
}

StateDict part_of_rank_1(double value) {
  StateDict memory, callbacks, part = optimizer_of("b", value);
  memory["value"] = value;
  callbacks["Memory"] = memory;
  part["callbacks"] = callbacks;
  return part;
}

// Both ranks write it; what rank 1 throws is thrown.
void save(Saver& saver, PartWriter& writer, int batch, const std::string& name = "") {
  Manifest manifest;
  manifest.name = name.empty() ? join("ba", batch) : name;
  manifest.time.batch = batch;
  const PartTicket ticket = PartTicket::parse(saver.open_parts(2));
  saver.plan(manifest);
  saver.save(manifest, state_of_rank_0(batch));
  writer.write(ticket, part_of_rank_1(batch));
  writer.wait();
}

double value_of(const StateDict& loaded, const std::string& parameter) {
  const auto inner = [](const StateDict& dict, const std::string& name) -> const StateDict& {
    return std::get<StateDict>(*dict.find(name));
  };
  const auto& fields = inner(inner(inner(loaded, "optimizer"), "state"), parameter);
  return std::get<at::Tensor>(*fields.find("exp_avg"))[39].item<double>();
}

// The batch of the newest checkpoint, all of whose parts are of that batch.
int whole_latest(const fs::path& folder) {
  const auto found = find_latest(folder, "latest");
  if (!found) return -1;
  const StateDict loaded = load(*found, 1, 2);
  const int batch = static_cast<int>(found->manifest.time.batch);
  for (const char* parameter : {"a", "b"}) CHECK(value_of(loaded, parameter) == batch);
  const auto& callbacks = std::get<StateDict>(*loaded.find("callbacks"));
  CHECK(std::get<double>(*std::get<StateDict>(*callbacks.find("Memory")).find("value")) == batch);
  return batch;
}

void put(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

bool has_leftovers(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(".tmp-")) return true;
  return false;
}

TEST_CASE("Parts become one checkpoint, which lists them") {
  const test::Folder folder;
  Saver saver({.folder = folder.path()});
  PartWriter writer(1, 2, OnFailure::FAIL, /*asynchronous=*/true);
  save(saver, writer, 1);
  saver.wait();
  CHECK(whole_latest(folder.path()) == 1);
  const Found found = open_checkpoint(folder / "ba1");
  CHECK(found.manifest.version == Manifest::kVersion);
  REQUIRE(found.manifest.files.size() == 3);
  CHECK(found.manifest.files[2].name == "state-1-of-2.safetensors");
  CHECK_FALSE(has_leftovers(folder.path()));
  CHECK_FALSE(load(found, 0, 2).find("callbacks"));  // rank 0 has its own
  CHECK_FALSE(load(found, 1, 3).find("callbacks"));
}

// Rank 0 renames the folder as soon as it sees the part.
class Hasty final : public FileSystem {
 public:
  void rename(const Path& from, const Path& to) override {
    FileSystem::rename(from, to);
    FileSystem::rename(to.parent_path(), to.parent_path().string() + ".whole");
  }
};

TEST_CASE("A rank has written its part when rank 0 may see it: it asks nothing more of the folder") {
  const test::Folder folder;
  fs::create_directory(folder / "made");
  PartWriter writer(1, 2, OnFailure::FAIL, /*asynchronous=*/false, std::make_shared<Hasty>());
  writer.write({.folder = folder / "made", .id = "0123456789abcdef"}, part_of_rank_1(1));
  CHECK(fs::exists(folder / "made.whole" / part_name(1, 2)));
}

TEST_CASE("When another rank is killed at any moment, the newest checkpoint is the old or the new one, whole") {
  bool done = false;
  for (int at = 0; !done; ++at) {
    CAPTURE(at);
    const test::Folder folder;
    test::Warnings warnings;
    Saver saver({.folder = folder.path()});
    PartWriter before(1, 2, OnFailure::FAIL, true);
    save(saver, before, 1);
    auto files = std::make_shared<Dying>(at);
    PartWriter writer(1, 2, OnFailure::FAIL, true, files);
    try {
      save(saver, writer, 2);
    } catch (const CheckpointError&) {
      CHECK(files->is_dead());
    }
    saver.writer().abandon(files->is_dead() ? 0ms : 5000ms);
    try {
      saver.wait();
    } catch (const CheckpointError&) {
      CHECK(files->is_dead());
    }
    done = !files->is_dead();
    const int latest = whole_latest(folder.path());
    CHECK((latest == 2 || (latest == 1 && !done)));
    CHECK_FALSE(has_leftovers(folder.path()));
    REQUIRE(at < 50);
  }
}

TEST_CASE("When rank 0 is killed at any moment, the newest checkpoint is the old or the new one, whole") {
  for (const bool replaces : {false, true}) {
    bool done = false;
    for (int at = 0; !done; ++at) {
      CAPTURE(replaces);
      CAPTURE(at);
      const test::Folder folder;
      test::Warnings warnings;
      PartWriter writer(1, 2, OnFailure::CONTINUE, true);
      std::string run_id;
      {
        Saver saver({.folder = folder.path(), .keep = 1});
        save(saver, writer, 1, "ck");
        saver.wait();
        run_id = saver.options().run_id;
      }
      auto files = std::make_shared<Dying>(at);
      try {
        Saver saver({.folder = folder.path(), .run_id = run_id}, files);
        save(saver, writer, 2, replaces ? "ck" : "other");
        saver.wait();
      } catch (const CheckpointError&) {
        CHECK(files->is_dead());
      }
      done = !files->is_dead();
      const int latest = whole_latest(folder.path());
      CHECK((latest == 2 || (latest == 1 && !done)));
      Saver next({.folder = folder.path(), .run_id = run_id});
      next.clean_up();
      CHECK_FALSE(has_leftovers(folder.path()));
      REQUIRE(at < 100);
    }
  }
}

// Has no room for a part.
struct Full final : FileSystem {
  void write(int file, const Path& path, std::uint64_t offset, const void* data, std::size_t size) override {
    const std::string name = path.filename().string();
    const bool is_part = name.find("safetensors") != std::string::npos,
               is_text = name.find("failed") != std::string::npos;
    if (is_full && is_part && !(is_text && has_room_for_text))
      throw FileError("no room", path, std::error_code(ENOSPC, std::generic_category()));
    FileSystem::write(file, path, offset, data, size);
  }
  std::atomic<bool> is_full = true;
  bool has_room_for_text = true;
};

TEST_CASE("A rank that cannot write its part says so to rank 0 at once, and both fail, or go on if they are to") {
  for (const auto& [on_failure, has_room_for_text] : {std::pair(OnFailure::FAIL, true),
                                                      {OnFailure::CONTINUE, true},
                                                      {OnFailure::FAIL, false},
                                                      {OnFailure::CONTINUE, false}}) {
    CAPTURE(has_room_for_text);
    const test::Folder folder;
    test::Warnings warnings;
    Saver saver({.folder = folder.path(), .on_failure = on_failure});
    auto files = std::make_shared<Full>();
    files->has_room_for_text = has_room_for_text;
    PartWriter writer(1, 2, on_failure, true, files);
    if (on_failure == OnFailure::FAIL) {
      CHECK(test::error_of([&] { save(saver, writer, 1); }).find("the part of rank 1 was not written") !=
            std::string::npos);
      CHECK_THROWS_AS(saver.wait(), CheckpointError);
    } else {
      save(saver, writer, 1);
      saver.wait();
      CHECK(saver.writer().failure().find(has_room_for_text ? "rank 1: " : "its rank could not write it") !=
            std::string::npos);
    }
    CHECK(whole_latest(folder.path()) == -1);
    CHECK_FALSE(has_leftovers(folder.path()));
    files->is_full = false;
    save(saver, writer, 2);
    saver.wait();
    CHECK(whole_latest(folder.path()) == 2);
  }
}

TEST_CASE("Any damage of a part, and parts that are missing or of another checkpoint, are errors when it is loaded") {
  const test::Folder folder;
  Saver saver({.folder = folder.path()});
  PartWriter writer(1, 2, OnFailure::FAIL, true);
  for (const int batch : {1, 2}) save(saver, writer, batch);
  saver.wait();
  const fs::path part = folder / "ba2" / part_name(1, 2);
  const std::string whole = test::text_of(part);
  const auto fails = [&] {
    try {
      load(open_checkpoint(folder / "ba2"));
      return false;
    } catch (const CheckpointError&) {
      return true;
    }
  };
  for (std::size_t i = 0; i < whole.size(); i += 7) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    put(part, damaged);
    CAPTURE(i);
    CHECK(fails());
  }
  put(part, whole.substr(0, whole.size() - 1));
  CHECK(fails());
  fs::copy_file(folder / "ba1" / part_name(1, 2), part, fs::copy_options::overwrite_existing);
  CHECK(fails());
  fs::remove(part);
  CHECK(fails());
  put(part, whole);
  CHECK_FALSE(fails());
}

TEST_CASE("A checkpoint in parts that is not to be kept is deleted with all of its parts") {
  const test::Folder folder;
  Saver saver({.folder = folder.path(), .keep = 1});
  PartWriter writer(1, 2, OnFailure::FAIL, true);
  for (const int batch : {1, 2, 3}) save(saver, writer, batch);
  saver.wait();
  CHECK(list_checkpoints(folder.path()).size() == 1);
  CHECK_FALSE(fs::exists(folder / "ba1"));
  CHECK(whole_latest(folder.path()) == 3);
}

TEST_CASE("A checkpoint in parts of an earlier version is read to the bit") {
  const Found found = open_checkpoint(test::golden_folder() / "checkpoint-3");
  CHECK(found.manifest.version == 3);
  CHECK(found.manifest.time.batch == 1);
  const StateDict loaded = load(found, 1, 2);
  for (const char* parameter : {"a", "b"}) CHECK(value_of(loaded, parameter) == 1);
  const auto& callbacks = std::get<StateDict>(*loaded.find("callbacks"));
  CHECK(std::get<double>(*std::get<StateDict>(*callbacks.find("Memory")).find("value")) == 1);
  const auto& model = std::get<StateDict>(*loaded.find("model"));
  CHECK(std::get<at::Tensor>(*model.find("weight")).eq(1).all().item<bool>());
}

TEST_CASE("Parts that were asked for and not saved leave nothing") {
  const test::Folder folder;
  Saver saver({.folder = folder.path()});
  saver.open_parts(2);
  CHECK(has_leftovers(folder.path()));
  saver.writer().drop_parts();
  CHECK_FALSE(has_leftovers(folder.path()));
}

}  // namespace
}  // namespace composer::saving::parts_test
