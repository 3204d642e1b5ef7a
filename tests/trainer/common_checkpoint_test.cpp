// Where trainers that resume together go on, by what is in their folders.
#include "composer/trainer/common_checkpoint.h"

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/ones.h>

#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/trainer/trainer.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/warnings.h"

namespace composer::test::common_checkpoint_test {
namespace {

// Checkpoints of a trainer of program "p", at these batches of its first fit.
void write(const std::filesystem::path& folder, const std::vector<std::int64_t>& batches) {
  saving::Saver saver({.folder = folder, .asynchronous = false});
  for (const std::int64_t batch : batches) {
    StateDict all, model;
    model["weight"] = at::ones({2});
    all["model"] = std::move(model);
    saving::Manifest manifest;
    manifest.name = join("ba", batch);
    manifest.run_name = "tiny";
    manifest.program = "p";
    manifest.fit = 0;
    manifest.time.batch = batch;
    saver.plan(manifest, {.weights = static_cast<std::uint64_t>(batch)});
    saver.save(manifest, all);
  }
}

saving::ResumePoint choose(const Folder& folder) {
  TrainerOptions options;
  options.run_name = "tiny";
  options.save_folder = folder / "first";
  options.resume_with = {folder / "second"};
  return newest_in_common(options);
}

std::set<std::string> ids_in(const Folder& folder) {
  return saving::ids_of(saving::list_checkpoints(folder / "first"));
}

TEST_CASE("The newest batch that both folders have is chosen, with the ids of all that was there") {
  const Folder folder;
  write(folder / "first", {2, 4, 6});
  write(folder / "second", {2, 4});
  const Warnings warnings;
  const saving::ResumePoint chosen = choose(folder);
  REQUIRE(chosen.found);
  CHECK(chosen.found->manifest.time.batch == 4);
  CHECK(chosen.seen == ids_in(folder));
  CHECK(chosen.begins_again.empty());
  CHECK(warnings.say("going back from batch 6"));
}

TEST_CASE("A run whose first checkpoint alone is there begins again, and that checkpoint is its own") {
  const Folder folder;
  write(folder / "first", {2});
  const Warnings warnings;
  const saving::ResumePoint chosen = choose(folder);
  CHECK_FALSE(chosen.found);
  CHECK(chosen.seen == ids_in(folder));
  CHECK(chosen.begins_again == saving::list_checkpoints(folder / "first").at(0).manifest.run_id);
}

TEST_CASE("In an empty folder a run begins, and whatever comes there later is another process's") {
  const Folder folder;
  write(folder / "second", {2});
  const saving::ResumePoint chosen = choose(folder);
  CHECK_FALSE(chosen.found);
  CHECK(chosen.seen == std::set<std::string>());
  CHECK(chosen.begins_again.empty());
}

TEST_CASE("Where both folders have checkpoints, and none in common, no run begins") {
  const Folder folder;
  write(folder / "first", {2, 4});
  write(folder / "second", {3});
  CHECK(error_of([&] { choose(folder); }).find("have no checkpoint of the same program and batch") !=
        std::string::npos);
}

}  // namespace
}  // namespace composer::test::common_checkpoint_test
