// Whether trainers that resume together could be started again after a kill, without any trainer.
#include "composer/trainer/saved_places.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <future>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::test::saved_places_test {
namespace {

using Places = std::vector<SavedPlace>;

SavedPlace at(std::int64_t batch, std::int64_t fit = 0) { return {.fit = fit, .batch = batch}; }

bool have_way_back(const SavedPlaces& a, const SavedPlaces& b) {
  return SavedPlaces::have_way_back(std::array{&a, &b}) && SavedPlaces::have_way_back(std::array{&b, &a});
}

// All of them are on disk.
SavedPlaces written(const Places& places) { return SavedPlaces(places); }

TEST_CASE("Trainers have a way back as long as each keeps one place that all have on disk") {
  CHECK(have_way_back(written({at(2), at(4)}), written({at(4), at(6)})));
  CHECK_FALSE(have_way_back(written({at(2), at(4), at(6)}), written({at(8), at(10)})));
  CHECK_FALSE(have_way_back(written({at(4, 0)}), written({at(4, 1)})));  // the same batch of another fit
  const SavedPlaces ahead = written({at(2), at(4), at(6)}).with(at(8), 3);
  CHECK(have_way_back(ahead, written({at(2), at(4)})));
  CHECK_FALSE(have_way_back(ahead, written({at(2)})));  // which is deleted
  CHECK(have_way_back(written({at(2), at(4), at(6)}).with(at(8), -1), written({at(2)})));
}

TEST_CASE("A place counts when it is on disk, and never if its write has failed") {
  const SavedPlaces other = written({at(4), at(6), at(8)});
  for (const char* ends : {"well", "badly", "with an exception"}) {
    CAPTURE(std::string(ends));
    SavedPlaces one = written({at(1), at(2), at(3)}).with(at(8), 3);
    CHECK_FALSE(have_way_back(one, other));
    std::optional<std::promise<bool>> promise(std::in_place);
    one.begin_writing(promise->get_future().share());
    one.settle();
    CHECK_FALSE(have_way_back(one, other));
    CHECK(one.written().valid());
    if (std::string(ends) == "with an exception")
      promise.reset();
    else
      promise->set_value(std::string(ends) == "well");
    one.settle();
    CHECK_FALSE(one.written().valid());
    CHECK(have_way_back(one, other) == (std::string(ends) == "well"));
    CHECK((one.all().back() == at(8)) == (std::string(ends) == "well"));
  }
}

TEST_CASE("What was planned, and not begun to be written, is not there when the next one is planned") {
  const SavedPlaces one = SavedPlaces().with(at(2), -1).with(at(4), -1);
  CHECK((one.all() == Places{at(4)}));
}

TEST_CASE("At the beginning, a trainer has two places at most before another has one, and all begin alike") {
  const SavedPlaces none;
  CHECK(have_way_back(none.with(at(2), -1), none));
  CHECK(have_way_back(written({at(2)}).with(at(4), -1), none));
  CHECK_FALSE(have_way_back(written({at(2), at(4)}).with(at(6), -1), none));
  CHECK(have_way_back(none.with(at(2), -1), none.with(at(2), -1)));
  CHECK_FALSE(have_way_back(none.with(at(5), -1), none.with(at(1), -1)));
  const SavedPlaces five = written({at(5)}), one = none.with(at(1), -1);
  CHECK_FALSE(SavedPlaces::have_way_back(std::array{&one, &none, &five}));
}

TEST_CASE("Two trainers differ when both have saved twice, at different places, since the last that both have") {
  const auto differ = [](const Places& a, const Places& b) {
    const bool one = SavedPlaces::differ(written(a), written(b));
    CHECK(one == SavedPlaces::differ(written(b), written(a)));
    return one;
  };
  CHECK_FALSE(differ({at(2)}, {at(2), at(4), at(6), at(8)}));         // one is ahead
  CHECK_FALSE(differ({at(2), at(3)}, {at(2), at(4), at(6), at(8)}));  // a stop
  CHECK(differ({at(2), at(3), at(5)}, {at(2), at(4), at(6)}));
  CHECK_FALSE(differ({at(2), at(3), at(6)}, {at(2), at(4), at(6)}));  // they meet again
  CHECK_FALSE(differ({at(2), at(3), at(3)}, {at(2), at(4), at(6)}));  // twice at one place
  CHECK(differ({at(4, 1), at(4, 2)}, {at(4, 3), at(4, 4)}));
}

// What a trainer may have on disk: it has `now`, or `before` as long as the newest is being written.
struct Disk {
  Places before, now;
  bool is_writing = false;
  std::promise<bool> promise;

  void finish() {
    if (!is_writing) return;
    promise.set_value(true);
    is_writing = false;
    before = now;
  }
  void save(const SavedPlace& place, std::int64_t keep, SavedPlaces& told) {
    finish();
    now.push_back(place);
    if (keep >= 0 && static_cast<std::int64_t>(now.size()) > keep) now.erase(now.begin());
    is_writing = true;
    promise = {};
    told.begin_writing(promise.get_future().share());
  }
};

// As newest_in_common() decides it for the trainer `own`.
bool can_start(const std::vector<const Places*>& all, std::size_t own) {
  Places common = *all[own];
  if (common.empty()) return true;
  for (std::size_t other = 0; other < all.size(); ++other) {
    std::erase_if(common, [&](const SavedPlace& one) { return std::ranges::count(*all[other], one) == 0; });
    if (common.empty()) return all[own]->size() <= SavedPlaces::kMostOfBeginning && all[other]->empty();
  }
  return true;
}

bool can_all_start(const std::vector<Disk>& disks) {
  for (unsigned written = 0; written < 1U << disks.size(); ++written) {
    std::vector<const Places*> all;
    for (std::size_t i = 0; i < disks.size(); ++i)
      all.push_back((written >> i & 1U) != 0 || !disks[i].is_writing ? &disks[i].now : &disks[i].before);
    for (std::size_t own = 0; own < all.size(); ++own)
      if (!can_start(all, own)) return false;
  }
  return true;
}

struct Trainers {
  explicit Trainers(std::size_t count, std::int64_t kept) : disks(count), told(count), keep(kept) {}

  // As ResumesTogether does it. False: refused.
  bool save(std::size_t one, const SavedPlace& place) {
    disks[one].finish();
    told[one].settle();
    for (const bool waits : {false, true}) {
      for (std::size_t i = 0; waits && i < disks.size(); ++i) disks[i].finish();
      for (SavedPlaces& other : told) other.settle();
      SavedPlaces after = told[one].with(place, keep);
      std::vector<const SavedPlaces*> all;
      for (std::size_t i = 0; i < told.size(); ++i) all.push_back(i == one ? &after : &told[i]);
      if (!SavedPlaces::have_way_back(all)) continue;
      told[one] = std::move(after);
      disks[one].save(place, keep, told[one]);
      return true;
    }
    return false;
  }

  std::vector<Disk> disks;
  std::vector<SavedPlaces> told;
  std::int64_t keep;
};

constexpr std::int64_t kKeeps[] = {3, 4, 5, -1};

TEST_CASE("Whatever trainers save, and whenever they are killed, they can start again unless they were refused") {
  std::mt19937 random(7);
  int refused = 0, saved = 0;
  for (int program = 0; program < 20'000; ++program) {
    Trainers trainers(2 + random() % 2, kKeeps[random() % 4]);
    std::vector<SavedPlace> last(trainers.disks.size());
    for (int save = 0; save < 12; ++save) {
      const std::size_t one = random() % last.size();
      if (random() % 6 == 0)
        last[one] = {.fit = last[one].fit + 1, .batch = static_cast<std::int64_t>(random() % 2)};
      else
        last[one].batch += program % 3 == 0 ? static_cast<std::int64_t>(random() % 3) : 1;
      if (random() % 2 == 0) trainers.disks[random() % last.size()].finish();
      if (!trainers.save(one, last[one])) {
        ++refused;
        break;
      }
      ++saved;
      REQUIRE_MESSAGE(can_all_start(trainers.disks), join("program ", program, ", save ", save));
    }
  }
  CHECK(refused > 1'000);
  CHECK(saved > 50'000);
}

TEST_CASE("Trainers whose equal turns are saved at most twice are never refused") {
  std::mt19937 random(8);
  for (int program = 0; program < 5'000; ++program) {
    Trainers trainers(2 + random() % 2, kKeeps[random() % 4]);
    std::int64_t batch = 0;
    for (int turn = 0; turn < 10; ++turn) {
      Places places;
      for (unsigned save = random() % 3; save > 0; --save) places.push_back(at(++batch, turn / 3));
      for (std::size_t one = 0; one < trainers.disks.size(); ++one)
        for (const SavedPlace& place : places) {
          if (random() % 2 == 0) trainers.disks[random() % trainers.disks.size()].finish();
          REQUIRE_MESSAGE(trainers.save(one, place), join("program ", program, ", turn ", turn));
          REQUIRE(can_all_start(trainers.disks));
          for (const SavedPlaces& other : trainers.told) REQUIRE_FALSE(SavedPlaces::differ(trainers.told[one], other));
        }
    }
  }
}

}  // namespace
}  // namespace composer::test::saved_places_test
