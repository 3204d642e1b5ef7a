#include "composer/net/upload_queue.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::upload_queue_test {

using namespace net;

namespace {

struct NoStore final : RemoteStore {
  std::string uri() const override { return "s3://b"; }
  std::vector<RemoteFile> list(const std::string&, const std::stop_token&) override { return {}; }

 protected:
  void do_put(const std::filesystem::path&, const std::string&, const std::stop_token&) override {}
  void do_remove(const std::string&, const std::stop_token&) override {}
  std::optional<std::uint64_t> do_size(const std::string&, const std::stop_token&) override { return {}; }
  Expected fetch(const std::string&, const std::filesystem::path&, const std::stop_token&) override { return {}; }
};

// Collects warnings of all threads.
struct Sink {
  Sink()
      : before(redirect_warnings([this](const std::string& text) {
          const std::lock_guard lock(mutex);
          texts.push_back(text);
        })) {}
  ~Sink() { redirect_warnings(before); }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  std::mutex mutex;
  std::vector<std::string> texts;
  WarningSink before;
};

// An upload that waits until it is cancelled, and says when it has begun.
struct Hanging {
  Upload upload(const std::string& name) {
    return {name, [this](RemoteStore&, const std::stop_token& stop) {
              std::unique_lock lock(mutex);
              begun = true;
              changed.notify_all();
              changed.wait(lock, stop, [] { return false; });
              throw Cancelled("cancelled");
            }};
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return begun; });
  }
  std::mutex mutex;
  std::condition_variable_any changed;
  bool begun = false;
};

constexpr UploadQueue::Duration kLong{60};

}  // namespace

TEST_CASE("What is called for an upload that failed may ask for the failures, also after the first one") {
  const Sink warnings;
  UploadQueue queue(std::make_unique<NoStore>(), {});
  std::vector<std::size_t> counts;
  for (int i = 0; i < 3; ++i)
    queue.send({"file", [](RemoteStore&, const std::stop_token&) { throw Error("no"); },
                [&](const std::string&) { counts.push_back(queue.failures().size()); }});
  REQUIRE(queue.drain(UploadQueue::Duration(60)));
  CHECK(counts == std::vector<std::size_t>{1, 2, 3});
}

TEST_CASE("Uploads are made in their order, and those after a failure as well") {
  Sink sink;
  std::vector<std::string> made, failed;
  UploadQueue queue(std::make_unique<NoStore>(), {.owner = "Owner"});
  for (const char* name : {"a", "b", "c", "d"})
    queue.send({name,
                [&made, name](RemoteStore&, const std::stop_token&) {
                  made.emplace_back(name);
                  if (*name == 'b') throw Error("no ", name);
                  if (*name == 'c') throw 42;
                },
                [&failed, name](const std::string& reason) { failed.push_back(name + (": " + reason)); }});
  CHECK(queue.drain(kLong));
  CHECK(made == std::vector<std::string>{"a", "b", "c", "d"});
  CHECK(failed == std::vector<std::string>{"b: no b", "c: something that is not a std::exception"});
  CHECK(sink.texts == std::vector<std::string>{"Owner: b was not uploaded: no b"});
  CHECK(queue.failures().size() == 2);
}

TEST_CASE("At the limit the current upload is cancelled and the others are reported") {
  Sink sink;
  Hanging hanging;
  UploadQueue queue(std::make_unique<NoStore>(), {});
  bool made = false;
  queue.send(hanging.upload("a"));
  queue.send({"b", [&](RemoteStore&, const std::stop_token&) { made = true; }});
  hanging.wait();
  CHECK_FALSE(queue.drain(UploadQueue::Duration(0)));
  queue.end(UploadQueue::Duration(0));
  CHECK_FALSE(made);
  REQUIRE(queue.failures().size() == 2);
  CHECK(queue.failures()[0].what == "a");
  CHECK(queue.failures()[1].reason == "there was no time left");
  queue.send({"c", {}});
  CHECK(queue.failures().back().reason == "the queue has ended");
}

TEST_CASE("Uploads beyond the capacity are reported and do not make the sender wait") {
  Sink sink;
  Hanging hanging;
  std::vector<std::string> failed;
  {
    UploadQueue queue(std::make_unique<NoStore>(), {.capacity = 2});
    queue.send(hanging.upload("a"));
    hanging.wait();
    for (const char* name : {"b", "c", "d"})
      queue.send({name, [](RemoteStore&, const std::stop_token&) {},
                  [&failed, name](const std::string& reason) { failed.push_back(name + (": " + reason)); }});
    CHECK(failed == std::vector<std::string>{"d: too many uploads wait"});
  }  // cancels
  CHECK(failed.size() == 3);
}

TEST_CASE("A list of failures gives each reason once, whatever file it names, with five names") {
  std::vector<UploadQueue::Failure> failures;
  for (const char* name : {"a1", "b2", "c3", "d4", "e5", "f6", "g7"})
    failures.push_back({name, std::string("PUT s3://b/") + name + "/x: no"});
  failures.push_back({"h", "full"});
  CHECK(text_of(failures, "s3://b") ==
        "8 files were not uploaded to s3://b\n  a1, b2, c3, d4, e5 and 2 more: PUT s3://b/a1/x: no\n  h: full");
  CHECK(text_of({{"x", "no"}}, "s3://b") == "1 file was not uploaded to s3://b\n  x: no");
  failures.clear();
  for (const char* reason : {"1", "2", "3", "4", "5"}) failures.push_back({"x", reason});
  CHECK(text_of(failures, "s3://b").ends_with("\n  x: 5"));
  for (const char* reason : {"6", "7"}) failures.push_back({"x", reason});
  CHECK(text_of(failures, "s3://b").ends_with("\n  x: 5\n  and others for 2 more reasons"));
}

TEST_CASE("A queue without room is rejected") {
  CHECK_THROWS_AS(UploadQueue(std::make_unique<NoStore>(), {.capacity = 0}), ConfigError);
}

}  // namespace composer::upload_queue_test
