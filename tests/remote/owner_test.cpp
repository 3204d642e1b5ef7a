// Two processes that save one run into one bucket.
#include "composer/remote/owner.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

#include "composer/core/error.h"
#include "tests/support/bucket.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/in_child.h"
#include "tests/support/warnings.h"

namespace composer::remote_owner_test {
namespace {

namespace fs = std::filesystem;
using test::Bucket;
using test::bucket_options;
using test::contains;
using test::error_of;

// A folder in place of a bucket.
struct Place {
  test::Folder folder;
  std::unique_ptr<net::RemoteStore> store = net::open_store("file://" + folder.path().string());

  fs::path file() const {
    for (const auto& entry : fs::directory_iterator(folder.path()))
      if (contains(entry.path().filename(), ".owner-")) return entry.path();
    return "";
  }
  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(file()).rdbuf();
    return std::move(text).str();
  }
  void write(const std::string& text) const { std::ofstream(file()) << text; }
};

std::string without(std::string text, const std::string& line) {
  const std::size_t begin = text.find(line);
  REQUIRE(begin != text.npos);
  return text.erase(begin, text.find('\n', begin) + 1 - begin);
}

// Two folders for what waits to be uploaded stand for two machines.
TrainerOptions on(const test::Folder& machine, const char* duration) {
  TrainerOptions options = bucket_options(duration, "1ba");
  options.save_staging_folder = machine.path();
  return options;
}

std::string owner_in(const Bucket& bucket) {
  for (const auto& [key, content] : bucket.server.objects())
    if (contains(key, "/.owner-")) return content;
  return "";
}

}  // namespace

TEST_CASE("The process that has started last owns a run, and the one before it learns of it") {
  const Place place;
  test::Warnings warnings;
  RemoteOwner one("tiny"), other("tiny"), another_run("large");
  one.hold(*place.store);
  one.hold(*place.store);
  CHECK(warnings.texts.empty());
  other.hold(*place.store);
  CHECK(warnings.say("took the run tiny over from process " + std::to_string(::getpid()) + " on "));
  another_run.hold(*place.store);
  other.hold(*place.store);
  CHECK(warnings.texts.size() == 1);
  const std::string error = error_of([&] { one.hold(*place.store); });
  CHECK(contains(error, "the run tiny was taken over by process " + std::to_string(::getpid()) + " on "));
  const std::string before = place.text();
  one.release(*place.store);  // it is not its own
  CHECK(place.text() == before);
}

TEST_CASE("An owner that ends removes its file, unless one that may be running has not read it yet") {
  const Place place;
  test::Warnings warnings;
  {
    RemoteOwner alone("tiny");
    alone.hold(*place.store);
    alone.release(*place.store);
    CHECK(place.file().empty());
  }
  RemoteOwner one("tiny"), other("tiny"), third("tiny");
  one.hold(*place.store);
  other.hold(*place.store);
  other.release(*place.store);
  CHECK(contains(place.text(), "ended: yes"));
  CHECK(contains(error_of([&] { one.hold(*place.store); }), "was taken over by process "));
  warnings.texts.clear();
  third.hold(*place.store);
  CHECK(warnings.texts.empty());
  third.release(*place.store);
  CHECK(contains(place.text(), "ended: yes"));  // `one` may look again
}

TEST_CASE("A process that was taken over does not take the run back after two others have ended") {
  const Place place;
  const test::Warnings warnings;
  RemoteOwner one("tiny"), second("tiny"), third("tiny");
  one.hold(*place.store);
  for (RemoteOwner* other : {&second, &third}) {
    other->hold(*place.store);
    other->release(*place.store);
  }
  CHECK(contains(error_of([&] { one.hold(*place.store); }), "taken over"));
}

TEST_CASE("Of two processes that save a run into a bucket, the one that began later owns it, whoever asks first") {
  Bucket bucket;
  test::Warnings warnings;
  const auto store = net::open_store("s3://b/runs");
  const auto now = RemoteOwner::Clock::now();
  RemoteOwner early("tiny"), late("tiny");
  early.begin(now - std::chrono::seconds(60));
  late.begin(now);
  const auto loses = [&] {
    const std::string error = error_of([&] { early.hold(*store); });
    CHECK(contains(error, "the run tiny was taken over by process " + std::to_string(::getpid()) + " on "));
  };
  SUBCASE("its first request comes after that of the later one") {
    late.hold(*store);
    loses();
    CHECK(warnings.texts.empty());
  }
  SUBCASE("its first request comes before") {
    early.hold(*store);
    late.hold(*store);
    loses();
  }
  SUBCASE("both see no owner, and its file is written last") {
    early.hold(*store);
    const std::string file = owner_in(bucket);
    REQUIRE_FALSE(file.empty());
    const auto objects = bucket.server.objects();
    const std::string key = objects.begin()->first;
    bucket.server.erase(key);
    late.hold(*store);
    bucket.server.set(key, file);
    late.hold(*store);
    loses();
  }
  late.hold(*store);
  late.release(*store);
  loses();  // it does not take the run back
}

TEST_CASE("Processes that begin within seconds of each other are ordered by who asks first, and one of them ends") {
  Bucket bucket;
  const test::Warnings warnings;
  const auto store = net::open_store("s3://b/runs");
  const auto now = RemoteOwner::Clock::now();
  RemoteOwner first("tiny"), second("tiny");
  first.begin(now);
  second.begin(now - std::chrono::seconds(1));
  first.hold(*store);
  second.hold(*store);
  CHECK(contains(error_of([&] { first.hold(*store); }), "was taken over by "));
  second.hold(*store);
}

TEST_CASE("A run whose later process was killed on this machine goes back to the earlier one") {
  Bucket bucket;
  const test::Warnings warnings;
  const auto store = net::open_store("s3://b/runs");
  RemoteOwner early("tiny");
  early.begin(RemoteOwner::Clock::now() - std::chrono::seconds(60));
  CHECK(test::ended_well(test::status_of_child([&] {
    const auto own = net::open_store("s3://b/runs");
    RemoteOwner("tiny").hold(*own);
    ::_exit(0);
  })));
  REQUIRE_FALSE(owner_in(bucket).empty());
  CHECK_NOTHROW(early.hold(*store));
}

TEST_CASE("A run whose process was killed on this machine is taken over without a warning") {
  const Place place;
  test::Warnings warnings;
  CHECK(test::ended_well(test::status_of_child([&] {
    RemoteOwner("tiny").hold(*place.store);
    ::_exit(0);
  })));
  REQUIRE_FALSE(place.file().empty());
  SUBCASE("by a process of this machine") {
    RemoteOwner next("tiny");
    next.hold(*place.store);
    CHECK(warnings.texts.empty());
    next.release(*place.store);
    CHECK(place.file().empty());
  }
  SUBCASE("but not by one of another machine, which cannot know") {
    place.write(without(place.text(), "machine: "));
    RemoteOwner("tiny").hold(*place.store);
    CHECK(warnings.say("took the run tiny over"));
  }
}

TEST_CASE("An owner's file that is damaged, empty or removed does not stop a run") {
  const Place place;
  test::Warnings warnings;
  RemoteOwner owner("tiny");
  owner.hold(*place.store);
  const std::string whole = place.text();
  fs::remove(place.file());
  owner.hold(*place.store);
  CHECK(contains(place.text(), whole.substr(0, whole.find('\n'))));
  for (const std::string& text : {std::string(), std::string("process: x\nmachine: \n"), std::string(1 << 16, 'x')}) {
    place.write(text);
    RemoteOwner next("tiny");
    next.hold(*place.store);
    next.hold(*place.store);
  }
}

TEST_CASE("A run that another machine continues in its bucket ends with an error, and changes nothing there") {
  Bucket bucket;
  const test::Warnings warnings;
  const test::Folder one, other;
  Trainer first(on(one, "8ba"));
  first.begin();
  first.step(), first.step();
  while (bucket.complete().size() < 2) std::this_thread::yield();
  {
    Trainer second(on(other, "4ba"));
    CHECK(contains(second.resumed_from(), "ep0-ba2"));
    second.fit();
  }
  const auto before = bucket.server.objects();
  const std::string error = error_of([&] {
    while (first.step()) {
    }
    first.end();
  });
  CHECK(contains(error, "save_folder: s3://b/runs/tiny: the run tiny was taken over by process "));
  CHECK(bucket.server.objects() == before);
  CHECK(bucket.complete().size() == 4);
}

TEST_CASE("With CONTINUE, a run that another machine continues saves on its own machine to its end") {
  Bucket bucket;
  const test::Warnings warnings;
  const test::Folder one, other;
  TrainerOptions options = on(one, "8ba");
  options.save_on_failure = saving::OnFailure::CONTINUE;
  Trainer first(options);
  first.begin();
  first.step();
  while (bucket.complete().empty()) std::this_thread::yield();
  Trainer(on(other, "2ba")).fit();
  const auto before = bucket.server.objects();
  while (first.step()) {
  }
  first.end();
  CHECK(first.saved_checkpoints().size() == 8);
  CHECK(bucket.server.objects() == before);
}

TEST_CASE("A fit owns its bucket from its begin to its end, also the second one of a trainer") {
  Bucket bucket;
  const test::Warnings warnings;
  Trainer trainer(bucket_options("1ep"));
  trainer.begin();
  for (int fit = 0; fit < 2; ++fit) {
    while (owner_in(bucket).empty()) std::this_thread::yield();
    while (trainer.step()) {
    }
    trainer.end();
    CHECK(owner_in(bucket).empty());
    if (fit == 0) trainer.begin({.duration = "1ep"});
  }
  CHECK(bucket.complete().size() == 2);
}

}  // namespace composer::remote_owner_test
