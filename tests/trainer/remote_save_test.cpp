// Runs whose save_folder or load_path is a URI.
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/formats/weights.h"
#include "composer/remote/checkpoints.h"
#include "composer/util/threads_here.h"
#include "tests/support/bucket.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/in_ranks.h"
#include "tests/support/warnings.h"

namespace composer::remote_save_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using test::Bucket;
using test::bucket_options;
using test::contains;
using test::error_of;
using test::HttpCall;
using test::HttpReply;
using test::trained;

// Whatever is complete has all files with the sizes of its manifest, and they are of this checkpoint.
void check_complete(const std::map<std::string, std::string>& objects) {
  for (const auto& [key, content] : objects) {
    if (!key.ends_with("/manifest.json")) continue;
    const std::string folder = key.substr(0, key.rfind('/') + 1);
    const auto manifest = saving::Manifest::parse(content, key);
    for (const auto& file : manifest.files) {
      REQUIRE(objects.contains(folder + file.name));
      CHECK(objects.at(folder + file.name).size() == file.size);
      CHECK(contains(objects.at(folder + file.name), manifest.id));
    }
  }
}

}  // namespace

TEST_CASE("A run saved to a bucket resumes from there on another machine, bit by bit") {
  Bucket bucket;
  test::Warnings warnings;
  TrainerOptions plain = bucket_options("3ep");
  plain.save_folder.clear();
  const at::Tensor expected = trained(plain);
  trained(bucket_options("2ep"));
  CHECK(bucket.complete() == std::vector<std::string>{"runs/tiny/ep1-ba4", "runs/tiny/ep2-ba8"});
  bucket.forget_machine();
  std::string from;
  CHECK(at::equal(trained(bucket_options("3ep"), &from), expected));
  CHECK(contains(from, "ep2-ba8"));
  CHECK(warnings.say("save_folder: downloading s3://b/runs/tiny/ep2-ba8, "));
  CHECK(warnings.say("resumed from s3://b/runs/tiny/ep2-ba8 (epoch 2, batch 8)"));
  CHECK(bucket.complete().size() == 3);
  for (const auto& objects : bucket.server.history()) check_complete(objects);
}

TEST_CASE("The value of an evaluation that comes after the last checkpoint is in the bucket, and decides elsewhere") {
  Bucket bucket;
  const test::Warnings quiet;
  const auto options = [](const char* duration) {
    TrainerOptions options = bucket_options(duration);
    options.eval_dataloader = test::tiny_loader(8, 4);
    options.save_best = saving::Best{.metric = "eval/CrossEntropy"};  // which falls
    options.save_num_checkpoints_to_keep = 1;
    return options;
  };
  trained(options("6ba"));
  const std::string text = bucket.server.objects().at("runs/tiny/ep1-ba6/manifest.json");
  CHECK(saving::Manifest::parse(text, "there").metrics.contains("eval/CrossEntropy"));
  bucket.forget_machine();
  Trainer elsewhere(options("8ba"));
  REQUIRE(elsewhere.best_checkpoint());
  CHECK(elsewhere.best_checkpoint()->ends_with("ep1-ba6"));
  for (const auto& objects : bucket.server.history()) check_complete(objects);
}

TEST_CASE("A run saved to a folder by its URI resumes from there") {
  const test::Folder cache, remote;
  const test::Variables variable({{"XDG_CACHE_HOME", cache.path()}});
  test::Warnings warnings;
  TrainerOptions options = bucket_options("1ep");
  options.save_folder = "file://" + remote.path().string() + "/{run_name}";
  trained(options);
  CHECK(saving::list_checkpoints(remote / "tiny").size() == 1);
  fs::remove_all(cache / "libcomposer");
  std::string from;
  options.max_duration = "2ep";
  options.model = test::tiny_model();
  trained(options, &from);
  CHECK(contains(from, "ep1-ba4"));
  CHECK(saving::list_checkpoints(remote / "tiny").size() == 2);
}

TEST_CASE("A bucket keeps as many checkpoints as the run, and none is ever incomplete") {
  Bucket bucket;
  TrainerOptions options = bucket_options("2ep", "1ba");
  options.save_num_checkpoints_to_keep = 2;
  trained(options);
  CHECK(bucket.complete() == std::vector<std::string>{"runs/tiny/ep1-ba7", "runs/tiny/ep1-ba8"});
  CHECK(bucket.server.objects().size() == 6);
  for (const auto& objects : bucket.server.history()) check_complete(objects);
}

TEST_CASE("Training does not wait for a slow bucket, and what is retired meanwhile is not uploaded") {
  Bucket bucket;
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  bucket.server.intercept([&](const HttpCall&) -> std::optional<HttpReply> {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return open; });
    return {};
  });
  TrainerOptions options = bucket_options("2ep", "1ba");
  options.save_num_checkpoints_to_keep = 1;
  options.autoresume = false;  // it would list the bucket
  options.callbacks = {test::At([&](Event event, const State&) {
    if (event != Event::FIT_END) return;
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  })};
  trained(options);
  CHECK(bucket.complete() == std::vector<std::string>{"runs/tiny/ep1-ba8"});
  int puts = 0;
  for (const HttpCall& call : bucket.server.calls()) puts += call.method == "PUT" && contains(call.target, "manifest");
  CHECK(puts <= 3);  // the first, which was begun; the last; and the one before it if the last was still being written
}

TEST_CASE("Other ranks wait for the uploads of rank 0 for longer than a collective may take") {
  Bucket bucket;
  bucket.server.intercept([began = std::optional<std::chrono::steady_clock::time_point>()](
                              const HttpCall& call) mutable -> std::optional<HttpReply> {
    if (call.method != "PUT") return {};
    const auto now = std::chrono::steady_clock::now();
    if (!began) began = now;
    std::this_thread::sleep_until(*began + 4s);
    return {};
  });
  dist::Options times;
  times.collective_timeout = 2s;
  int ended = 0;
  std::mutex mutex;
  test::in_ranks(
      2,
      [&](dist::World& world) {
        use_threads_here(1);
        TrainerOptions options = bucket_options("1ep");
        options.autoresume = false;
        options.world = std::shared_ptr<dist::World>(std::shared_ptr<void>(), &world);
        Trainer trainer(std::move(options));
        trainer.fit();
        const std::lock_guard lock(mutex);
        ended += 1;
      },
      times);
  CHECK(ended == 2);
  CHECK(bucket.complete() == std::vector<std::string>{"runs/tiny/ep1-ba4"});
}

TEST_CASE("What was not uploaded ends the fit with an error, and is uploaded by the next start") {
  Bucket bucket;
  test::Warnings warnings;
  bucket.server.intercept([](const HttpCall& call) -> std::optional<HttpReply> {
    if (call.method != "PUT") return {};
    return HttpReply{403, "<Error><Code>AccessDenied</Code><Message>No</Message></Error>"};
  });
  const std::string error = error_of([] { trained(bucket_options("2ep")); });
  CHECK(contains(error, "save_folder: 2 checkpoints were not uploaded to s3://b/runs/tiny"));
  CHECK(contains(error, "ep2-ba8: PUT"));
  CHECK(contains(error, "AccessDenied: No; check the credentials"));
  CHECK_FALSE(contains(error, "verysecret"));
  bucket.server.intercept({});
  CHECK(bucket.complete().empty());
  std::string from;
  trained(bucket_options("2ep"), &from);  // complete: nothing is trained
  trained(bucket_options("3ep"), &from);
  CHECK(contains(from, "ep2-ba8"));
  CHECK(bucket.complete() == std::vector<std::string>{"runs/tiny/ep1-ba4", "runs/tiny/ep2-ba8", "runs/tiny/ep3-ba12"});
}

TEST_CASE("An interrupted run says where it is saved, and ends as such also if the bucket does not take it") {
  Bucket bucket;
  test::Warnings warnings;
  bucket.server.intercept([](const HttpCall& call) -> std::optional<HttpReply> {
    return call.method == "PUT" ? std::optional(HttpReply{403}) : std::nullopt;
  });
  TrainerOptions options = bucket_options("2ep");
  options.handle_signals = true;
  options.callbacks = {test::At([](Event event, const State& state) {
    if (event == Event::BATCH_END && state.timestamp.batch == 2) std::raise(SIGINT);
  })};
  trained(options);
  CHECK(warnings.say("interrupted (SIGINT) after batch 2; saved to " + (bucket.cache / "libcomposer").string()));
  CHECK(warnings.say("; waiting for uploads to s3://b/runs/tiny, up to "));
  CHECK(warnings.say("save_folder: 1 checkpoint was not uploaded to s3://b/runs/tiny"));
  CHECK(warnings.say("the next start with this save_folder uploads what is missing"));
}

TEST_CASE(
    "Checkpoints wait in save_staging_folder, and the end of a fit for them as long as save_upload_timeout says") {
  Bucket bucket;
  const test::Folder staging;
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  bucket.server.intercept([&](const HttpCall& call) -> std::optional<HttpReply> {
    if (call.method != "PUT") return {};
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return open; });
    return {};
  });
  TrainerOptions options = bucket_options("1ep");
  options.save_staging_folder = staging.path();
  options.save_upload_timeout = Seconds(0.01);
  {
    Trainer trainer(options);
    const std::string error = error_of([&] { trainer.fit(); });
    CHECK(contains(error, "uploads to s3://b/runs/tiny are not finished after 0.01 s"));
    CHECK(contains(error, "the checkpoints are in " + local_save_folder("s3://b/runs/tiny", staging.path())));
    CHECK_FALSE(fs::exists(bucket.cache / "libcomposer"));
  }
  {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
  options.save_upload_timeout = Seconds(600);
  trained(options);  // complete: nothing is trained
  CHECK(bucket.complete() == std::vector<std::string>{"runs/tiny/ep1-ba4"});
  options.save_upload_timeout = Seconds(0);
  CHECK(contains(error_of([&] { Trainer trainer(options); }), "save_upload_timeout: must be > 0 seconds, got 0"));
}

TEST_CASE(
    "A bucket that answers one byte after another delays the end of a program as long as save_upload_timeout says") {
  Bucket bucket;
  const test::Warnings warnings;
  bucket.server.intercept([](const HttpCall& call) -> std::optional<HttpReply> {
    return call.method == "PUT" ? std::optional(HttpReply{200, "", {}, HttpReply::Fault::DRIP}) : std::nullopt;
  });
  TrainerOptions options = bucket_options("1ep");
  options.save_upload_timeout = Seconds(0.1);
  const auto start = std::chrono::steady_clock::now();
  CHECK(contains(error_of([&] { trained(options); }), "uploads to s3://b/runs/tiny are not finished after 0.1 s"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
  bucket.server.intercept({});
  trained(bucket_options("1ep"));  // complete: nothing is trained
  CHECK(bucket.complete() == std::vector<std::string>{"runs/tiny/ep1-ba4"});
}

TEST_CASE("Two runs with one save_folder upload their own checkpoints, also if both wait") {
  Bucket bucket;
  const test::Warnings warnings;
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false, reached = false;
  bucket.server.intercept([&](const HttpCall& call) -> std::optional<HttpReply> {
    if (call.method != "PUT" || !contains(call.target, "model.safetensors")) return {};
    std::unique_lock lock(mutex);
    reached = true;
    changed.notify_all();
    changed.wait(lock, [&] { return open; });
    return {};
  });
  const auto options = [](const char* name) {
    TrainerOptions options = bucket_options("1ep");
    options.save_folder = "s3://b/runs";
    options.save_filename = "{run_name}-ba{batch}";
    options.save_latest_filename = "{run_name}-latest";
    options.autoresume = false;  // it would list the bucket
    options.run_name = name;
    return options;
  };
  Trainer one(options("one")), other(options("other"));
  one.begin();
  while (one.step()) {
  }
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
  other.begin();
  while (other.step()) {
  }
  {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
  CHECK_NOTHROW(one.end());
  CHECK_NOTHROW(other.end());
  CHECK(bucket.complete() == std::vector<std::string>{"runs/one-ba4", "runs/other-ba4"});
  check_complete(bucket.server.objects());
}

TEST_CASE("A manifest of an absurd size is no checkpoint, and is not read") {
  Bucket bucket;
  const test::Warnings warnings;
  trained(bucket_options("1ep"));
  bucket.forget_machine();
  const std::string key = "runs/tiny/ep9-ba9/manifest.json";
  const auto store = net::open_store("s3://b");
  const test::Folder folder;
  std::ofstream(folder / "large") << std::string((16 << 20) + 1, ' ');
  store->put(folder / "large", key);
  std::string from;
  trained(bucket_options("2ep"), &from);
  CHECK(contains(from, "ep1-ba4"));
  for (const HttpCall& call : bucket.server.calls()) CHECK_FALSE((call.method == "GET" && contains(call.target, key)));
  CHECK(
      contains(error_of([&] { read_manifest(*store, "runs/tiny/ep9-ba9"); }), "is no manifest: it has 16777217 bytes"));
}

TEST_CASE("With CONTINUE, what was not uploaded is a warning") {
  Bucket bucket;
  test::Warnings warnings;
  bucket.server.intercept([](const HttpCall& call) -> std::optional<HttpReply> {
    return call.method == "PUT" ? std::optional(HttpReply{403}) : std::nullopt;
  });
  TrainerOptions options = bucket_options("1ep");
  options.save_on_failure = saving::OnFailure::CONTINUE;
  trained(options);
  CHECK(warnings.say("save_folder: 1 checkpoint was not uploaded to s3://b/runs/tiny"));
}

TEST_CASE("A bucket that cannot be listed is an error, so that no run starts from scratch beside its checkpoints") {
  Bucket bucket;
  bucket.server.intercept([](const HttpCall&) { return HttpReply{403}; });
  CHECK(contains(error_of([] { trained(bucket_options("1ep")); }), "status 403"));
}

TEST_CASE("A checkpoint without its manifest is not resumed, and one with missing files is not either") {
  Bucket bucket;
  test::Warnings warnings;
  trained(bucket_options("2ep"));
  bucket.forget_machine();
  bucket.server.erase("runs/tiny/ep2-ba8/manifest.json");
  std::string from;
  trained(bucket_options("2ep"), &from);
  CHECK(contains(from, "ep1-ba4"));
  bucket.forget_machine();
  bucket.server.erase("runs/tiny/ep1-ba4/model.safetensors");
  bucket.server.erase("runs/tiny/ep2-ba8/manifest.json");
  CHECK(contains(error_of([] { trained(bucket_options("2ep")); }), "ep1-ba4: files are missing"));
}

TEST_CASE(
    "A damaged newest checkpoint is passed over on a machine that has no other, with the same weights in the end") {
  const test::Folder cache, remote;
  const test::Variables variable({{"XDG_CACHE_HOME", cache.path()}});
  test::Warnings warnings;
  const auto run = [&](const char* duration, std::string* from = nullptr) {
    TrainerOptions options = bucket_options(duration);
    options.save_folder = "file://" + remote.path().string() + "/{run_name}";
    options.model = test::tiny_model();
    return trained(options, from);
  };
  const auto damage = [&](const char* name) {
    std::fstream file(remote / "tiny" / name / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
    REQUIRE(file.flush());
  };
  run("3ep");
  for (const char* name : {"ep3-ba12", "ep2-ba8"}) {
    damage(name);
    fs::remove_all(cache / "libcomposer");
  }
  std::string from;
  TrainerOptions plain = bucket_options("4ep");
  plain.save_folder.clear();
  plain.model = test::tiny_model();
  CHECK(at::equal(run("4ep", &from), trained(plain)));
  CHECK(contains(from, "ep1-ba4"));
  CHECK(warnings.say("going back to"));
  damage("ep1-ba4"), damage("ep2-ba8"), damage("ep3-ba12"), damage("ep4-ba16");
  fs::remove_all(cache / "libcomposer");
  CHECK(contains(error_of([&] { run("5ep"); }), "ep1-ba4"));
}

TEST_CASE(
    "A name in the bucket that leads to the save folder itself, or out of it, is passed over and deletes nothing") {
  Bucket bucket;
  test::Warnings warnings;
  trained(bucket_options("2ep"));
  const auto files = [&] {
    std::set<std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(bucket.cache / "libcomposer"))
      if (entry.is_regular_file()) all.insert(entry.path().string());
    return all;
  };
  const auto before = files();
  const auto objects = bucket.server.objects();
  for (const char* name : {"runs/tiny/./", "runs/tiny/../", "runs/tiny//"}) {
    for (const auto& [key, content] : objects) {
      if (!key.starts_with("runs/tiny/ep2-ba8/")) continue;
      std::string forged = content;
      if (key.ends_with("manifest.json")) forged.replace(forged.find("\"batch\": 8"), 10, "\"batch\": 9");
      bucket.server.set(name + key.substr(18), forged);
    }
  }
  std::string from;
  static_cast<void>(error_of([&] { trained(bucket_options("2ep"), &from); }));
  CHECK(contains(from, "ep2-ba8"));
  const auto after = files();
  for (const std::string& file : before) CHECK(after.contains(file));
}

TEST_CASE(
    "A name in the bucket that leads to the save folder itself, or out of it, is passed over and deletes nothing") {
  Bucket bucket;
  test::Warnings warnings;
  trained(bucket_options("3ep"));
  const fs::path folder = local_save_folder("s3://b/runs/tiny");
  fs::remove_all(folder / "ep3-ba12");
  const auto objects = bucket.server.objects();
  for (const auto& [key, content] : objects) {
    const std::string newest = "runs/tiny/ep3-ba12/";
    if (!key.starts_with(newest)) continue;
    bucket.server.erase(key);
    for (const char* odd : {"runs/tiny/./", "runs/tiny/../", "runs/tiny//"})
      bucket.server.set(odd + key.substr(newest.size()), content);
  }
  std::string from;
  trained(bucket_options("3ep"), &from);
  CHECK(contains(from, "ep2-ba8"));
  for (const char* name : {"ep1-ba4", "ep2-ba8", "ep3-ba12"}) CHECK(fs::exists(folder / name / "manifest.json"));
}

TEST_CASE("A checkpoint of another run in the bucket is replaced only if that was asked for") {
  Bucket bucket;
  test::Warnings warnings;
  trained(bucket_options("1ep"));
  const auto before = bucket.server.objects();
  bucket.forget_machine();
  TrainerOptions options = bucket_options("1ep");
  options.autoresume = false;
  CHECK(contains(error_of([&] { trained(options); }), "already exists and was not written by this run"));
  CHECK(bucket.server.objects() == before);
  bucket.forget_machine();
  options.model = test::tiny_model();
  options.save_overwrite = true;
  trained(options);
  CHECK(bucket.server.objects() != before);
  for (const auto& objects : bucket.server.history()) check_complete(objects);
}

TEST_CASE("load_path takes a checkpoint, a run and a file of a bucket") {
  Bucket bucket;
  test::Warnings warnings;
  const at::Tensor expected = trained(bucket_options("2ep"));
  bucket.server.set("weights/w.safetensors", bucket.server.objects().at("runs/tiny/ep2-ba8/model.safetensors"));
  for (const char* path : {"s3://b/runs/tiny", "s3://b/runs/{run_name}/ep2-ba8/", "s3://b/weights/w.safetensors"}) {
    CAPTURE(path);
    TrainerOptions options = test::tiny_options();
    options.load_path = path;
    options.load_weights_only = true;
    Trainer trainer(options);
    CHECK(at::equal(test::weights_of(trainer), expected));
  }
  TrainerOptions options = test::tiny_options();
  options.load_path = "s3://b/none";
  CHECK(contains(error_of([&] { Trainer trainer(options); }), "s3://b/none: is neither a checkpoint"));
}

TEST_CASE("A save_folder of a scheme that cannot list files, or of none, is rejected before training") {
  const test::Folder cache;
  const test::Variables variable({{"XDG_CACHE_HOME", cache.path()}});
  for (const char* uri : {"http://127.0.0.1:1/x", "gs://b/x"}) {
    TrainerOptions options = bucket_options("1ep");
    options.save_folder = uri;
    CHECK(contains(error_of([&] { Trainer trainer(options); }), uri));
  }
}

TEST_CASE("The local folder of a URI is below the cache, and differs for each URI") {
  const test::Variables variable({{"XDG_CACHE_HOME", std::string("/cache")}});
  CHECK(local_save_folder("runs/a") == "runs/a");
  const std::string folder = local_save_folder("s3://b/runs/a");
  CHECK(folder.starts_with("/cache/libcomposer/uploads/b-runs-a-"));
  CHECK(folder.ends_with("/checkpoints"));
  CHECK(local_save_folder("s3://b/runs-a") != folder);
  const test::Variables elsewhere({{"AWS_ENDPOINT_URL_S3", "https://another.example"}, {"S3_ENDPOINT_URL", ""}});
  CHECK(local_save_folder("s3://b/runs/a") != folder);
  CHECK(local_save_folder("runs/a") == "runs/a");
}

}  // namespace composer::remote_save_test
