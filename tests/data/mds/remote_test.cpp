// Data sets in remote folders: what is fetched, kept and deleted, and what servers, disks and kills do wrong.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <set>
#include <thread>
#include <unistd.h>

#include <ATen/ATen.h>

#include <sys/resource.h>
#include <sys/wait.h>

#include "composer/core/error.h"
#include "composer/data/for_rank.h"
#include "composer/data/mds/shard_store.h"
#include "composer/data/mds/streaming_dataset.h"
#include "composer/util/own_descriptor.h"
#include "tests/data/mds/support.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/fake_s3.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/folder.h"
#include "tests/support/http_server.h"
#include "tests/support/in_child.h"
#include "tests/support/system_calls.h"
#include "tests/support/warnings.h"

namespace composer::mds_remote_test {

namespace fs = std::filesystem;
using data::streaming;
using data::StreamingDataset;
using data::detail::ShardStore;
using test::content_of;
using test::flat;
using test::Folder;
using test::HttpCall;
using test::HttpReply;
using test::HttpServer;
using test::ids_of;
using test::write_content;

namespace {

// Files of a folder over HTTP, but for what `instead` replies.
struct Served {
  explicit Served(fs::path folder, std::function<std::optional<HttpReply>(const HttpCall&)> instead = {})
      : root(std::move(folder)), server([this, instead](const HttpCall& call) -> HttpReply {
          if (instead)
            if (const auto reply = instead(call)) return *reply;
          const fs::path file = root.string() + call.target;
          if (!fs::is_regular_file(file)) return {404, "none"};
          return {200, content_of(file)};
        }) {}
  std::size_t gets(const std::string& name) const {
    std::size_t count = 0;
    for (const HttpCall& call : server.calls()) count += call.target.ends_with(name) ? 1 : 0;
    return count;
  }
  fs::path root;
  HttpServer server;
};

data::MdsWriterOptions zipped(const char* compression) { return {.compression = compression, .hashes = {"sha1"}}; }

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(folder))
    if (file.is_regular_file()) names.insert(file.path().filename().string());
  return names;
}

// Nothing of an interrupted download.
void check_clean(const fs::path& folder) {
  if (!fs::exists(folder / ".download")) return;
  for (const auto& file : fs::directory_iterator(folder / ".download")) {
    CAPTURE(file.path().string());
    CHECK(file.path().extension() == ".lock");
  }
}

std::vector<std::int64_t> everything(const StreamingDataset& dataset, std::int64_t workers = 2) {
  auto ids = flat(ids_of(*streaming(dataset, {.batch_size = 8, .num_workers = workers}), 0));
  std::ranges::sort(ids);
  return ids;
}

std::vector<std::int64_t> counting(std::int64_t n) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < n; ++i) all.push_back(i);
  return all;
}

data::detail::ShardStoreSetup quick(const std::string& remote, const fs::path& local, int attempts = 3) {
  data::detail::ShardStoreSetup options{.remote = remote, .local = local};
  options.http.http.retry.attempts = attempts;
  options.http.http.sleep = [](std::chrono::milliseconds, const std::stop_token&) {};
  return options;
}

}  // namespace

TEST_CASE("A data set is read from a web server, a bucket and a folder, fetched once, with and without compression") {
  for (const char* compression : {"", "zstd", "gz"}) {
    if (!test::has(compression)) continue;
    CAPTURE(compression);
    const Folder folder;
    test::write_numbered(folder / "r/train", 101, zipped(compression));
    const Served served(folder / "r");
    test::FakeS3 bucket;
    for (const auto& name : files_in(folder / "r/train")) {
      const std::string content = content_of(folder / "r/train" / name);
      bucket.set("data/train/" + name, content);
    }
    const test::Variables variables(variables_of(bucket));
    int number = 0;
    for (const std::string& remote : {served.server.url(), std::string("s3://b/data"), (folder / "r").string(),
                                      "file://" + (folder / "r").string()}) {
      CAPTURE(remote);
      const fs::path local = folder / ("local" + std::to_string(number++));
      const StreamingDataset dataset({.local = local, .remote = remote, .split = "train", .validate_hash = "sha1"});
      CHECK(files_in(local / "train") == std::set<std::string>{"index.json"});
      CHECK(dataset.sample(50).integer("id") == 50);
      CHECK(files_in(local / "train").size() == 2);
      CHECK(everything(dataset) == counting(101));
      CHECK(everything(StreamingDataset({.local = local, .split = "train"})) == counting(101));
      check_clean(local / "train");
    }
    for (const HttpCall& call : served.server.calls()) CHECK(served.gets(call.target) == 1);
  }
}

TEST_CASE("keep_zip keeps compressed shards, which are deleted without it") {
  const Folder folder;
  test::write_numbered(folder / "r", 40, zipped("gz"));
  for (const bool keep : {false, true}) {
    const fs::path local = folder / (keep ? "keep" : "drop");
    CHECK(everything(StreamingDataset({.local = local, .remote = (folder / "r").string(), .keep_zip = keep})) ==
          counting(40));
    const auto names = files_in(local);
    CHECK(std::ranges::any_of(names, [](const std::string& name) { return name.ends_with(".gz"); }) == keep);
    fs::remove(local / "shard.00000.mds");
    const StreamingDataset again({.local = local, .remote = keep ? "" : (folder / "r").string()});
    CHECK(again.sample(0).integer("id") == 0);
  }
}

TEST_CASE("Requests that fail for a while are repeated, and the samples are the same") {
  const Folder folder;
  test::write_numbered(folder / "r", 60);
  using enum HttpReply::Fault;
  std::atomic<int> calls = 0;
  const Served served(folder / "r", [&](const HttpCall& call) -> std::optional<HttpReply> {
    const std::string content = content_of(folder.path().string() + "/r" + call.target);
    switch (calls++ % 4) {
      case 0:
        return HttpReply{503, "busy"};
      case 1:
        return HttpReply{.status = 200, .body = content, .fault = CUT};
      case 2:
        return HttpReply{.fault = CLOSE};
      default:
        return {};
    }
  });
  auto options = quick(served.server.url(), folder / "l", 4);
  ShardStore store(options);
  for (std::size_t shard = 0; shard < store.shards().size(); ++shard)
    CHECK(store.open(shard)->size() == store.shards()[shard].samples);
  check_clean(folder / "l");
}

TEST_CASE("An error says which shard of which URL cannot be had and why, and the next try may succeed") {
  const Folder folder;
  test::write_numbered(folder / "r", 60);
  std::atomic<int> fault = 0;
  const std::string shard = content_of(folder / "r/shard.00001.mds");
  const Served served(folder / "r", [&](const HttpCall& call) -> std::optional<HttpReply> {
    if (!call.target.ends_with("shard.00001.mds")) return {};
    switch (fault) {
      case 1:
        return HttpReply{404, "none"};
      case 2:
        return HttpReply{500, "broken"};
      case 3:
        return HttpReply{200, "<html>Sign in</html>"};
      case 4:
        return HttpReply{200, std::string(shard.size(), 'x')};
      case 5:
        return HttpReply{
            .status = 200, .body = shard, .headers = {"Content-Length: " + std::to_string(shard.size() + 5)}};
      default:
        return {};
    }
  });
  const std::pair<int, const char*> faults[] = {
      {1, "404"}, {2, "500"}, {3, "by index.json; the remote file is damaged"}, {4, "1987"}, {5, "shard.00001.mds"}};
  ShardStore store(quick(served.server.url(), folder / "l", 2));
  for (const auto& [number, text] : faults) {
    if (number == 4) continue;  // a shard of the right size is only found by its hash, below, or when it is opened
    fault = number;
    const std::string error = test::error_of([&] { store.open(1); });
    CAPTURE(error);
    CHECK(error.find("shard 1, shard.00001.mds, of " + served.server.url() + ": cannot be had") != std::string::npos);
    CHECK(error.find(text) != std::string::npos);
    CHECK_FALSE(fs::exists(folder / "l/shard.00001.mds"));
    check_clean(folder / "l");
  }
  fault = 4;
  CHECK_THROWS_AS(store.open(1), DataError);
  fault = 0;
  CHECK(store.open(1)->size() == store.shards()[1].samples);
}

TEST_CASE("A remote index.json that cannot be had or read leaves nothing, so that the next try succeeds") {
  const Folder folder;
  test::write_numbered(folder / "r", 20);
  std::atomic<int> fault = 1;
  const Served served(folder / "r", [&](const HttpCall&) -> std::optional<HttpReply> {
    if (fault == 1) return HttpReply{200, "<html>Sign in</html>"};
    if (fault == 2) return HttpReply{403, "no"};
    return {};
  });
  const data::StreamingOptions options{.local = folder / "l", .remote = served.server.url(), .download_retry = 0};
  CHECK_THROWS_WITH_AS(StreamingDataset{options}, doctest::Contains("/index.json: expected {"), DataError);
  fault = 2;
  const std::string error = test::error_of([&] { StreamingDataset{options}; });
  CHECK(error.find("the index.json of " + served.server.url() + " cannot be fetched") != std::string::npos);
  CHECK(error.find("403") != std::string::npos);
  fault = 0;
  CHECK(StreamingDataset(options).size() == 20);
}

TEST_CASE("A shard that another process has truncated is fetched again") {
  const Folder folder;
  test::write_numbered(folder / "r", 60);
  const StreamingDataset dataset({.local = folder / "l", .remote = (folder / "r").string()});
  CHECK(dataset.sample(0).integer("id") == 0);
  const std::string whole = content_of(folder / "l/shard.00001.mds");
  write_content(folder / "l/shard.00001.mds", "cut");
  write_content(folder / "l/shard.00002.mds",
                content_of(folder / "r/shard.00003.mds"));  // of the right size, and wrong
  const StreamingDataset verified({.local = folder / "l", .remote = (folder / "r").string()});
  CHECK(everything(verified).size() == 60);
}

TEST_CASE("A damaged local shard is fetched again when its hash is verified") {
  const Folder folder;
  test::write_numbered(folder / "r", 60, {.hashes = {"xxh64"}});
  const data::StreamingOptions options{
      .local = folder / "l", .remote = (folder / "r").string(), .validate_hash = "xxh64"};
  CHECK(everything(StreamingDataset(options)) == counting(60));
  std::string damaged = content_of(folder / "l/shard.00001.mds");
  damaged.back() ^= 1;
  write_content(folder / "l/shard.00001.mds", damaged);
  CHECK(everything(StreamingDataset(options)) == counting(60));
  CHECK(content_of(folder / "l/shard.00001.mds") == content_of(folder / "r/shard.00001.mds"));
  write_content(folder / "r/shard.00001.mds", damaged);  // and where the remote one is damaged, it is an error
  fs::remove(folder / "l/shard.00001.mds");
  CHECK_THROWS_WITH_AS(everything(StreamingDataset(options)), doctest::Contains("its xxh64 is not"), DataError);
}

TEST_CASE("The cache stays within its limit, and an epoch has every sample all the same") {
  const Folder folder;
  for (const char* compression : {"", "gz"}) {
    test::write_numbered(folder / "r" / compression, 600, zipped(compression));
    const fs::path local = folder / "l" / compression;
    const test::Warnings warnings;
    const StreamingDataset dataset(
        {.local = local, .remote = (folder / "r" / compression).string(), .cache_limit = 8000});
    std::uint64_t most = 0;
    for (const std::int64_t workers : {0, 3}) {
      const auto loader =
          streaming(dataset, {.batch_size = 8, .shuffle_block_size = 30, .num_workers = workers, .predownload = 16});
      for (const std::int64_t epoch : {0, 1}) {
        loader->seek(epoch, 0);
        std::vector<std::int64_t> ids;
        while (const auto batch = loader->next()) {
          for (const std::int64_t id : test::numbers_of(batch->at("id"))) ids.push_back(id);
          std::uint64_t now = 0;
          for (const auto& file : fs::directory_iterator(local)) {
            std::error_code gone;
            const std::uint64_t bytes = file.path().extension() == ".json" ? 0 : fs::file_size(file.path(), gone);
            now += gone ? 0 : bytes;
          }
          most = std::max(most, now);
        }
        std::ranges::sort(ids);
        CHECK(ids == counting(600));
      }
    }
    CHECK(most <= 9000);  // looks and downloads are at different moments
    CHECK(most > 4000);
    CHECK(warnings.texts.empty());
    streaming(dataset, {.batch_size = 8});
    CHECK(warnings.say("so shards are fetched more than once in each epoch"));
  }
  CHECK_THROWS_WITH_AS(StreamingDataset({.local = folder / "l", .remote = (folder / "r").string(), .cache_limit = 100}),
                       doctest::Contains("cache_limit must be at least"), ConfigError);
}

TEST_CASE("The shard that was not used for the longest time is deleted first") {
  const Folder folder;
  test::write_numbered(folder / "r", 200);
  const StreamingDataset dataset(
      {.local = folder / "l", .remote = (folder / "r").string(), .cache_limit = 4000, .download_threads = 1});
  const std::int64_t each = ShardStore(quick((folder / "r").string(), folder / "l")).shards()[0].samples;
  const auto read = [&](std::int64_t shard) { CHECK(dataset.sample(shard * each).integer("id") == shard * each); };
  const auto has = [&](int shard) {
    return fs::exists(folder / "l" / ("shard.0000" + std::to_string(shard) + ".mds"));
  };
  for (const int shard : {0, 1, 2, 3}) read(shard);
  read(0);
  read(4);
  CHECK(has(0));
  CHECK_FALSE(has(1));
  CHECK(has(2));
  read(2);
  const StreamingDataset other(
      {.local = folder / "l", .remote = (folder / "r").string(), .cache_limit = 4000, .download_threads = 1});
  CHECK(other.sample(5 * each).integer("id") == 5 * each);
  CHECK(has(5));
  CHECK(has(0) + has(1) + has(2) + has(3) + has(4) == 3);
  for (const int shard : {0, 1, 2, 3, 4, 5}) read(shard);  // some are fetched again
}

TEST_CASE("Ranks that share a folder fetch each shard once, and deletions by one do not disturb the others") {
  const Folder folder;
  test::write_numbered(folder / "r", 300);
  const Served served(folder / "r");
  const auto read = [&](std::int64_t rank, std::int64_t limit) {
    const StreamingDataset dataset({.local = folder / "l", .remote = served.server.url(), .cache_limit = limit});
    const auto loader =
        data::for_rank(
            {.dataloader = streaming(dataset, {.batch_size = 12, .shuffle_block_size = 60, .num_workers = 2})}, rank, 3)
            .dataloader;
    return flat(ids_of(*loader, 0)).size();
  };
  std::vector<std::thread> ranks;
  std::atomic<std::size_t> all = 0;
  for (std::int64_t rank = 0; rank < 3; ++rank) ranks.emplace_back([&, rank] { all += read(rank, 0); });
  for (std::thread& thread : ranks) thread.join();
  CHECK(all == 300);
  for (const HttpCall& call : served.server.calls()) CHECK(served.gets(call.target) == 1);
  all = 0;
  ranks.clear();
  const test::Warnings quiet;
  for (std::int64_t rank = 0; rank < 3; ++rank) ranks.emplace_back([&, rank] { all += read(rank, 6000); });
  for (std::thread& thread : ranks) thread.join();
  CHECK(all == 300);
}

TEST_CASE("A process that is killed while it fetches does no harm to the next one, or to one that waits") {
  const Folder folder;
  test::write_numbered(folder / "r", 60, zipped("gz"));
  for (int i = 0; i < 12; ++i) {
    const fs::path local = folder / ("l" + std::to_string(i));
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        const StreamingDataset dataset({.local = local, .remote = (folder / "r").string()});
        for (std::int64_t s = 0; s < 60; ++s) dataset.sample(s);
      } catch (...) {
      }
      for (;;) ::pause();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(everything(StreamingDataset({.local = local, .remote = (folder / "r").string(), .validate_hash = "sha1"})) ==
          counting(60));
    check_clean(local);
  }
}

TEST_CASE("What a killed download has left is removed by the next one") {
  const Folder folder;
  test::write_numbered(folder / "r", 60);
  const std::string name = "%tshard.00001.mds%t0123456789abcdef";
  write_content(folder / ("l/.download/." + name + ".12345.part"), "half");
  write_content(folder / ("l/.download/" + name), "not renamed yet");
  CHECK(everything(StreamingDataset({.local = folder / "l", .remote = (folder / "r").string()})) == counting(60));
  check_clean(folder / "l");
}

TEST_CASE("Without locks, readers of one folder do not disturb each other's downloads") {
  const Folder folder;
  test::write_numbered(folder / "r", 60, zipped("gz"));
  const test::NoLocks no_locks;
  for (int round = 0; round < 4; ++round) {
    const fs::path local = folder / ("l" + std::to_string(round));
    const std::string other = "%tshard.00001.mds%t0123456789abcdef";  // of a download on another machine
    write_content(local / ".download" / other, "half");
    std::atomic<int> good = 0;
    std::vector<std::string> errors(4);
    std::vector<std::thread> readers;
    for (std::string& error : errors)
      readers.emplace_back([&] {
        error = test::error_of([&] {
          const StreamingDataset dataset({.local = local, .remote = (folder / "r").string(), .validate_hash = "sha1"});
          if (everything(dataset) == counting(60)) ++good;
        });
      });
    for (std::thread& reader : readers) reader.join();
    for (const std::string& error : errors) CHECK(error == "no error");
    CHECK(good == 4);
    CHECK(fs::remove(local / ".download" / other));
    check_clean(local);
  }
}

TEST_CASE("A shard that cannot be opened stays in the cache") {
  const Folder folder;
  test::write_numbered(folder / "r", 60);
  const data::StreamingOptions options{.local = folder / "l", .remote = (folder / "r").string()};
  CHECK(everything(StreamingDataset(options)) == counting(60));
  const int status = test::status_of_child([&] {
    const StreamingDataset dataset(options);
    const int next = ::dup(2);
    ::close(next);
    const rlimit none_left{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = static_cast<rlim_t>(next)};
    ::setrlimit(RLIMIT_NOFILE, &none_left);
    const std::string error = test::error_of([&] { dataset.sample(0); });
    if (error.find("Too many open files") == std::string::npos) throw DataError(error);
  });
  CHECK(test::ended_well(status));
  CHECK(content_of(folder / "l/shard.00000.mds") == content_of(folder / "r/shard.00000.mds"));
}

TEST_CASE("A shard that another process has put in place is verified all the same") {
  const Folder folder;
  test::write_numbered(folder / "r", 60, {.hashes = {"xxh64"}});
  const StreamingDataset dataset({.local = folder / "l", .remote = (folder / "r").string(), .validate_hash = "xxh64"});
  std::string damaged = content_of(folder / "r/shard.00000.mds");
  damaged.back() ^= 1;
  fs::create_directories(folder / "l/.download");
  util::OwnDescriptor other;
  REQUIRE(other.open(folder / "l/.download/shard.00000.mds.lock", O_RDWR | O_CREAT));
  REQUIRE(other.try_lock());
  std::thread reader([&] { CHECK(dataset.sample(0).integer("id") == 0); });
  write_content(folder / "l/damaged", damaged);
  fs::rename(folder / "l/damaged", folder / "l/shard.00000.mds");
  other.close();
  reader.join();
  CHECK(content_of(folder / "l/shard.00000.mds") == content_of(folder / "r/shard.00000.mds"));
}

TEST_CASE("With a limit of the cache, shards that were fetched ahead stay until they are read") {
  const Folder folder;
  test::write_numbered(folder / "r", 600);
  const Served served(folder / "r");
  const ShardStore store(quick(served.server.url(), folder / "l"));
  const std::int64_t block = 8 * store.shards()[0].samples;
  const auto shards = static_cast<std::size_t>(store.shards().size());
  const StreamingDataset dataset(
      {.local = folder / "l", .remote = served.server.url(), .cache_limit = 18000, .download_threads = 1});
  const auto loader = streaming(dataset, {.batch_size = 4, .shuffle_block_size = block});
  CHECK(flat(ids_of(*loader, 0)).size() == 600);
  const std::size_t before = served.server.calls().size();
  CHECK(flat(ids_of(*loader, 1)).size() == 600);
  const std::size_t gets = served.server.calls().size() - before;
  CAPTURE(shards);
  CHECK(shards > 30);
  CHECK(gets <= shards + shards / 10);
  CHECK(gets > shards / 4);
}

TEST_CASE("Any name may be that of a shard") {
  const Folder folder;
  test::write_numbered(folder / "r", 60);
  std::string index = content_of(folder / "r/index.json");
  const std::string from = "shard.00000.mds", to = "cache";
  index.replace(index.find(from), from.size(), to);
  write_content(folder / "r/index.json", index);
  fs::rename(folder / "r" / from, folder / "r" / to);
  const int status = test::status_of_child([&] {  // which is killed if it waits for itself
    const StreamingDataset dataset({.local = folder / "l", .remote = (folder / "r").string(), .cache_limit = 100000});
    if (everything(dataset) != counting(60)) throw DataError("samples are missing");
  });
  CHECK(test::ended_well(status));
}

TEST_CASE("An error of a remote index.json does not tell the secrets of its URL") {
  const Folder folder;
  test::write_numbered(folder / "r", 20);
  const Served served(folder / "r", [&](const HttpCall&) { return HttpReply{200, "<html>Sign in</html>"}; });
  const std::string remote = "http://user:hunter2@" + served.server.url().substr(7);
  const std::string error = test::error_of([&] { StreamingDataset({.local = folder / "l", .remote = remote}); });
  CAPTURE(error);
  CHECK(error.find("/index.json: expected {") != std::string::npos);
  CHECK(error.find("hunter2") == std::string::npos);
  check_clean(folder / "l");
}

TEST_CASE("A disk that is full is an error that names the shard, and leaves nothing that could be read") {
  const Folder folder;
  test::write_numbered(folder / "r", 400, {.size_limit = 20000});
  test::write_numbered(folder / "z", 400, {.compression = "gz", .size_limit = 20000});
  for (const char* from : {"r", "z"}) {
    const fs::path local = folder / (std::string("l") + from);
    const StreamingDataset dataset({.local = local, .remote = (folder / from).string(), .download_retry = 0});
    {
      const test::FileSizeLimit full(8192);
      const std::string error = test::error_of([&] { dataset.sample(0); });
      CAPTURE(error);
      CHECK(error.find("shard 0, shard.00000.mds") != std::string::npos);
      CHECK(error.find("File too large") != std::string::npos);
    }
    CHECK_FALSE(fs::exists(local / "shard.00000.mds"));
    CHECK(dataset.sample(0).integer("id") == 0);
    CHECK(everything(dataset) == counting(400));
  }
}

TEST_CASE("A loader ends at once while a server stands still") {
  const Folder folder;
  test::write_numbered(folder / "r", 60);
  const Served served(folder / "r", [](const HttpCall& call) -> std::optional<HttpReply> {
    if (!call.target.ends_with("shard.00001.mds")) return {};
    return HttpReply{.fault = HttpReply::Fault::HANG};
  });
  const auto begin = std::chrono::steady_clock::now();
  {
    const StreamingDataset dataset({.local = folder / "l", .remote = served.server.url()});
    const auto loader = streaming(dataset, {.batch_size = 8, .shuffle = false, .num_workers = 2});
    CHECK(loader->next());  // the workers go on, and wait
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("An error of a download is thrown by the next() of its batch, and later batches follow") {
  const Folder folder;
  test::write_numbered(folder / "r", 60);
  fs::remove(folder / "r/shard.00001.mds");
  const StreamingDataset dataset({.local = folder / "l", .remote = (folder / "r").string(), .download_retry = 0});
  for (const std::int64_t workers : {0, 2}) {
    const auto loader = streaming(dataset, {.batch_size = 4, .shuffle = false, .num_workers = workers});
    int good = 0, bad = 0;
    for (int b = 0; b < 15; ++b) {
      try {
        loader->next();
        ++good;
      } catch (const DataError& error) {
        CHECK(std::string(error.what()).find("shard.00001.mds: does not exist") != std::string::npos);
        ++bad;
      }
    }
    CHECK(bad >= 3);
    CHECK(bad <= 6);
    CHECK(good + bad == 15);
  }
}

}  // namespace composer::mds_remote_test
