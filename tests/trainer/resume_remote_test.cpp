// What a run that was killed has left in a bucket and beside its save folder, and what the resumed run makes of it.
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/ATen.h>

#include <sys/file.h>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/remote/checkpoints.h"
#include "tests/support/bucket.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::test::resume_remote_test {
namespace {

namespace fs = std::filesystem;
using test::Bucket;
using test::bucket_options;
using test::contains;
using test::HttpCall;
using test::HttpReply;
using test::trained;

// Of checkpoints.
std::optional<HttpReply> refuse_deletions(const HttpCall& call) {
  const bool refused = call.method == "DELETE" && !contains(call.target, ".owner-");
  return refused ? std::optional(HttpReply{403}) : std::nullopt;
}

// Each batch begins when the checkpoint of the one before is in the bucket: what is deleted earlier is not uploaded.
Callbacks without_haste(const Bucket& bucket) {
  return {test::At([&bucket, saved = std::size_t{0}](Event event, const State&) mutable {
    if (event != Event::BATCH_START) return;
    while (bucket.complete().size() < saved) std::this_thread::yield();
    ++saved;
  })};
}

TrainerOptions two_kept(const char* duration) {
  TrainerOptions options = bucket_options(duration, "1ba");
  options.save_num_checkpoints_to_keep = 2;
  options.save_on_failure = saving::OnFailure::CONTINUE;
  return options;
}

}  // namespace

TEST_CASE("A run that another machine has continued comes back to the first one") {
  const Bucket bucket;
  const test::Folder one, two;
  const test::Warnings warnings;
  const auto on = [](const test::Folder& machine, const char* duration) {
    TrainerOptions options = bucket_options(duration, "1ba");
    options.save_staging_folder = machine.path().string();
    return options;
  };
  trained(on(one, "2ba"));
  trained(on(two, "3ba"));
  std::string from;
  const at::Tensor weights = trained(on(one, "4ba"), &from);
  CHECK(contains(from, "ep0-ba3"));
  TrainerOptions unbroken = bucket_options("4ba");
  unbroken.save_folder.clear();
  CHECK(at::equal(weights, trained(unbroken)));
}

TEST_CASE("Copies that one process could not delete in the bucket are deleted by the next one") {
  Bucket bucket;
  const test::Warnings warnings;
  bucket.server.intercept(refuse_deletions);
  TrainerOptions options = two_kept("2ep");
  options.callbacks = without_haste(bucket);
  trained(options);
  REQUIRE(bucket.complete().size() == 8);
  bucket.server.intercept({});
  SUBCASE("on the same machine") {}
  SUBCASE("on another machine") { bucket.forget_machine(); }
  trained(two_kept("9ba"));
  CHECK(bucket.complete() == std::vector<std::string>{"runs/tiny/ep1-ba8", "runs/tiny/ep2-ba9"});
  CHECK(bucket.server.objects().size() == 6);
}

TEST_CASE(
    "What a deleted checkpoint or the killed upload of one has left is deleted, and nothing else below its name") {
  Bucket bucket;
  const test::Warnings warnings;
  bucket.server.intercept(refuse_deletions);
  TrainerOptions options = two_kept("2ep");
  options.callbacks = without_haste(bucket);
  trained(options);
  bucket.server.intercept({});
  bucket.server.erase("runs/tiny/ep0-ba1/manifest.json");
  for (const char* notes : {"runs/tiny/ep0-ba1/notes.txt", "runs/tiny/ep0-ba2/notes.txt"})
    bucket.server.set(notes, "kept");
  trained(two_kept("9ba"));
  CHECK(bucket.server.objects().size() == 8);
  CHECK(bucket.server.objects().contains("runs/tiny/ep0-ba1/notes.txt"));
  CHECK(bucket.server.objects().contains("runs/tiny/ep0-ba2/notes.txt"));
}

TEST_CASE("A checkpoint that replaces a deleted one of its name stays in the bucket") {
  Bucket bucket;
  const test::Warnings warnings;
  TrainerOptions options = bucket_options("4ba", "1ba");
  options.save_filename = "turn{batch_in_epoch}";
  options.save_num_checkpoints_to_keep = 1;
  options.save_on_failure = saving::OnFailure::CONTINUE;
  options.callbacks = without_haste(bucket);
  bucket.server.intercept(refuse_deletions);
  trained(options);
  REQUIRE(bucket.complete().size() == 4);
  bucket.server.intercept({});
  options.max_duration = "5ba";
  options.callbacks = {};
  options.model = test::tiny_model();
  trained(options);
  CHECK(bucket.complete() == std::vector<std::string>{"runs/tiny/turn1"});
  CHECK(bucket.server.objects().size() == 3);
  const std::string manifest = bucket.server.objects().at("runs/tiny/turn1/manifest.json");
  CHECK(saving::Manifest::parse(manifest, "turn1").time.batch == 5);
}

TEST_CASE("Every kept checkpoint that the bucket lacks is uploaded by the next start, oldest first") {
  Bucket bucket;
  const test::Warnings warnings;
  TrainerOptions options = bucket_options("2ep", "1ba");
  options.save_num_checkpoints_to_keep = 3;
  trained(options);
  for (const char* batch : {"7", "8"})
    for (const char* file : {"manifest.json", "model.safetensors", "state.safetensors"})
      bucket.server.erase("runs/tiny/ep1-ba" + std::string(batch) + "/" + file);
  const std::size_t before = bucket.server.history().size();
  trained(options);  // complete: nothing is trained
  CHECK(bucket.complete() == std::vector<std::string>{"runs/tiny/ep1-ba6", "runs/tiny/ep1-ba7", "runs/tiny/ep1-ba8"});
  for (std::size_t i = before; i < bucket.server.history().size(); ++i)
    if (bucket.server.history()[i].contains("runs/tiny/ep1-ba8/model.safetensors"))
      CHECK(bucket.server.history()[i].contains("runs/tiny/ep1-ba7/manifest.json"));
}

TEST_CASE("Downloads that a killed process has left are removed by the next start, and those of a live one are not") {
  Bucket bucket;
  const test::Warnings warnings;
  const test::Folder temporary;
  const test::Variables variable({{"TMPDIR", temporary.path()}});
  trained(bucket_options("1ep"));
  const fs::path staging = fs::path(local_save_folder("s3://b/runs/tiny")).parent_path();
  for (const char* name : {".fetch-dead00", ".fetch-live00", ".fetch-of-a-user"}) {
    fs::create_directories(staging / name);
    std::ofstream(staging / name / "model.safetensors") << "half";
  }
  fs::create_directories(temporary / "composer-fetch-dead00");
  fs::create_directories(temporary / "composer-load-dead00/files");
  const int live = ::open((staging / ".fetch-live00").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(::flock(live, LOCK_EX | LOCK_NB) == 0);
  const auto left = [&] {
    std::set<std::string> names;
    for (const fs::path& folder : {staging, temporary.path()})
      for (const auto& entry : fs::directory_iterator(folder))
        if (const std::string name = entry.path().filename(); contains(name, "fetch-") || contains(name, "load-"))
          names.insert(name);
    return names;
  };
  const std::set<std::string> kept = {".fetch-live00", ".fetch-of-a-user"};
  SUBCASE("also if nothing is downloaded") {
    trained(bucket_options("2ep"));
    CHECK(left() == kept);
  }
  SUBCASE("before a checkpoint is downloaded") {
    fs::remove_all(local_save_folder("s3://b/runs/tiny"));
    std::size_t during = 0;
    bucket.server.intercept([&](const HttpCall& call) -> std::optional<HttpReply> {
      if (call.method == "GET" && contains(call.target, "state.safetensors")) during = left().size();
      return {};
    });
    trained(bucket_options("2ep"));
    CHECK(during == kept.size() + 1);  // its own
    CHECK(left() == kept);
  }
  SUBCASE("before a load_path is downloaded") {
    TrainerOptions options = test::tiny_options();
    options.load_path = "s3://b/runs/tiny";
    options.load_weights_only = true;
    Trainer trainer(options);
    CHECK_FALSE(left().contains("composer-load-dead00"));
    CHECK_FALSE(left().contains("composer-fetch-dead00"));
  }
  ::close(live);
}

}  // namespace composer::test::resume_remote_test
