// Power fails at any moment of a save: what may be on the disk then, made real, and a run that goes on from it.
#include "tests/checkpoint/power_loss.h"

#include <functional>
#include <memory>

#include "composer/core/error.h"
#include "tests/checkpoint/checkpoints.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::test::power_loss_test {
namespace {

namespace fs = std::filesystem;
using saving::CheckpointFolder;

// Syncs nothing: for what is made to be looked at and thrown away.
struct Hasty final : saving::FileSystem {
  void sync(int, const Path&) override {}
  void sync_folder(const Path&) override {}
};

struct Scenario {
  std::string name;
  std::function<void(CheckpointFolder&)> before, save;
  int old;  // the batch of the newest before; -1: there is none
  bool can_exchange = true;
  std::string unmovable = {};  // the name of a checkpoint that cannot be renamed
};

const std::vector<Scenario>& scenarios() {
  static const auto save = [](int batch, const std::string& name) {
    return [=](CheckpointFolder& folder) { folder.write(manifest_of(batch, name), files_of(batch), "latest"); };
  };
  static const auto foreign = [](CheckpointFolder& folder) {
    folder.write(manifest_of(1, "ba", "other"), files_of(1), "latest", /*overwrite=*/true);
  };
  static const auto two = [](CheckpointFolder& folder) {
    save(1, "ba1")(folder);
    save(2, "ba2")(folder);
  };
  static const std::vector<Scenario> all = {
      {"the first", [](CheckpointFolder&) {}, save(1, "ba1"), -1},
      {"the first, in a folder of its own", [](CheckpointFolder&) {}, save(1, "sub/ba1"), -1},
      {"a later one", save(1, "ba1"), save(2, "ba2"), 1},
      {"a later one that retires others", two,
       [](CheckpointFolder& folder) {
         save(3, "ba3")(folder);
         CHECK(folder.remove({"ba1", "ba2"}).empty());
       },
       2},
      {"a later one that retires others, in folders of their own",
       [](CheckpointFolder& folder) { save(1, "a/ba1")(folder), save(2, "b/ba2")(folder); },
       [](CheckpointFolder& folder) {
         save(3, "c/ba3")(folder);
         CHECK(folder.remove({"a/ba1", "b/ba2"}).empty());
       },
       2},
      {"one in the place of its own", save(1, "ba"), save(2, "ba"), 1},
      {"one in the place of another run's", foreign,
       [](CheckpointFolder& folder) { folder.write(manifest_of(2, "ba"), files_of(2), "latest", /*overwrite=*/true); },
       1},
      {"one in the place of its own, in a folder of its own", save(1, "sub/ba"), save(2, "sub/ba"), 1},
      {"one in the place of its own, without exchanging", save(1, "ba"), save(2, "ba"), 1, false},
      {"one in the place of its own, in a folder of its own, without exchanging", save(1, "sub/ba"), save(2, "sub/ba"),
       1, false},
      {"one in the place of its own, which cannot be renamed", save(1, "ba"), save(2, "ba"), 1, false, "ba"},
      {"a later one that retires one that cannot be renamed", save(1, "ba1"),
       [](CheckpointFolder& folder) {
         save(2, "ba2")(folder);
         CHECK(folder.remove({"ba1"}).empty());
       },
       1, true, "ba1"},
  };
  return all;
}

struct Outcome {
  std::set<int> seen;     // batches of the newest
  std::size_t disks = 0;  // looked at
  std::string wrong;      // the first
};

// What is wrong with a disk after which the newest checkpoint should be one of these; empty: nothing.
std::string look(const PowerLoss::Disk& disk, const std::set<int>& allowed, Outcome& outcome) {
  const Folder folder;
  disk.put_into(folder.path());
  const fs::path saved = folder / "ck";
  const auto found = saving::find_latest(saved, "latest");
  const int newest = found ? static_cast<int>(found->manifest.time.batch) : -1;
  outcome.seen.insert(newest);
  if (!allowed.contains(newest)) return join("the newest is of batch ", newest);
  if (found && !is_whole(*found)) return join("the newest, of batch ", newest, ", is not whole");
  for (const saving::Found& listed : saving::list_checkpoints(saved))
    if (!is_whole(listed)) return listed.path.filename().string() + " is listed and not whole";
  Hasty files;
  CheckpointFolder(saved, "later", files).remove_leftovers();
  write(saved, 9, files, "ba9");
  if (whole_latest(saved) != 9) return "the next save does not become the newest";
  for (const auto& entry : fs::directory_iterator(saved))
    if (entry.is_directory() && !entry.is_symlink() && entry.path().filename().string().starts_with(".tmp-"))
      return "a leftover stays";
  return "";
}

Outcome fail_at_each_call(const Scenario& scenario, PowerLoss::Forgets forgets, std::size_t most) {
  const Folder root;
  PowerLoss disk(root.path(), forgets);
  disk.can_exchange = scenario.can_exchange;
  CheckpointFolder folder(root / "ck", "run", disk);
  scenario.before(folder);
  if (!scenario.unmovable.empty()) disk.unmovable = root / "ck" / scenario.unmovable;
  disk.settle();
  const std::size_t first = disk.calls();
  scenario.save(folder);
  const int made = static_cast<int>(saving::find_latest(root / "ck", "latest")->manifest.time.batch);
  std::mt19937_64 random(1);
  std::set<PowerLoss::Disk> known;
  Outcome outcome;
  for (std::size_t moment = first; moment <= disk.calls() && outcome.wrong.empty(); ++moment) {
    const bool ended = moment == disk.calls();
    for (const PowerLoss::Disk& found : disk.after_failure(moment, most, random)) {
      if (!known.insert(found).second && !ended) continue;
      ++outcome.disks;
      outcome.wrong = look(found, ended ? std::set{made} : std::set{made, scenario.old}, outcome);
      if (outcome.wrong.empty()) continue;
      outcome.wrong += join(", after call ", moment - first, " of ", disk.calls() - first, " of a save");
      break;
    }
  }
  return outcome;
}

TEST_CASE("power fails at each call of a save: the old or the new checkpoint is whole, and once it is over the new") {
  for (const Scenario& scenario : scenarios()) {
    CAPTURE(scenario.name);
    const Outcome outcome = fail_at_each_call(scenario, PowerLoss::Forgets::NOTHING, 64);
    CHECK_MESSAGE(outcome.wrong.empty(), outcome.wrong);
    CHECK(outcome.seen.size() == 2);
    CHECK(outcome.disks > 20);
  }
}

TEST_CASE("a save that forgets to sync files, or folders, is found out by a failure of power") {
  for (const auto forgets : {PowerLoss::Forgets::FILES, PowerLoss::Forgets::FOLDERS}) {
    const Outcome outcome = fail_at_each_call(scenarios()[2], forgets, 64);
    CHECK_FALSE(outcome.wrong.empty());
  }
}

TEST_CASE("what is not synced may be lost, and what is synced is not") {
  const Folder root;
  PowerLoss disk(root.path());
  const auto states = [&] {
    std::mt19937_64 random(1);
    return disk.after_failure(disk.calls(), 64, random);
  };
  const int file = disk.create(root / "a");
  disk.write(file, root / "a", 0, "text", 4);
  std::set<std::string> contents;
  bool missing = false;
  for (const PowerLoss::Disk& state : states())
    if (const auto found = state.files.find("a"); found == state.files.end())
      missing = true;
    else
      contents.insert(found->second);
  CHECK(missing);
  CHECK(contents == std::set<std::string>{"", std::string("te\0\0", 4), "text"});
  disk.sync(file, root / "a");
  disk.close(file, root / "a");
  CHECK(states().size() == 2);  // its name is not synced
  disk.sync_folder(root.path());
  REQUIRE(states().size() == 1);
  CHECK(states().begin()->files.at("a") == "text");
}

}  // namespace
}  // namespace composer::test::power_loss_test
