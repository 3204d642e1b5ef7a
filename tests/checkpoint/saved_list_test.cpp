#include "composer/checkpoint/saved_list.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::saving::saved_list_test {
namespace {

using Names = std::vector<std::string>;
using Outcome = SavedList::Outcome;
using Metrics = std::map<std::string, double>;

const SavedList::Folder kEmptyFolder = {.is_gone = [](const std::string&) { return false; },
                                        .is_free = [](const std::string&) { return true; }};

Manifest named(const std::string& name, std::int64_t batch = 0, Metrics metrics = {}) {
  Manifest manifest;
  manifest.id = join("id-", name, '-', batch);
  manifest.name = name;
  manifest.time.batch = batch;
  manifest.metrics = std::move(metrics);
  return manifest;
}

std::optional<SavedList::Sent> send(SavedList& list, const Manifest& manifest, const Planned& planned = {}) {
  list.plan(manifest, planned);
  Manifest sent = manifest;
  return list.send(sent);
}

void save(SavedList& list, const Manifest& manifest, const Planned& planned = {}) {
  send(list, manifest, planned);
  list.settle(Outcome::WRITTEN, {});
}

StateDict state_of(SavedList& list, std::uint64_t weights = 0) {
  StateDict state;
  StateVisitor visit = StateVisitor::saving(state);
  list.visit_state(visit, weights, -1, {});
  return state;
}

Best best_of_metric() { return {.metric = "eval/a", .better = Better::HIGHER}; }

TEST_CASE("A checkpoint that is planned is in the list, and a plan that is dropped never was") {
  SavedList list(1);
  save(list, named("a"));
  list.plan(named("b"), {});
  CHECK(list.names() == Names{"b"});
  CHECK(list.retired() == Names{"a"});
  list.drop_plan();
  CHECK(list.names() == Names{"a"});
  CHECK(list.retired().empty());
  Manifest none = named("c");
  CHECK_FALSE(list.send(none));
}

TEST_CASE("One that failed leaves the list as it was, in its order, with what was noted meanwhile") {
  SavedList list(2, best_of_metric());
  save(list, named("a", 1), {.weights = 1});
  save(list, named("b", 2), {.weights = 2});
  const auto sent = send(list, named("a", 3), {.weights = 3});  // it replaces the first
  CHECK(list.names() == Names{"b", "a"});
  list.add_metrics(1, {{"eval/a", 0.5}});  // of the one that is replaced
  list.settle(Outcome::FAILED, {});
  CHECK(list.names() == Names{"a", "b"});
  CHECK(list.find("a")->value == 0.5);
  Manifest next = named("c", 4);
  list.plan(next, {.weights = 4});
  list.send(next);
  CHECK(next.number == 3);
  CHECK(next.parent == "b");
}

TEST_CASE("What could not be deleted is deleted with the next one, and nothing twice") {
  SavedList list(1);
  save(list, named("a"));
  CHECK(send(list, named("b"))->retired == Names{"a"});
  CHECK(list.retired().empty());  // somebody deletes it
  list.settle(Outcome::WRITTEN, {"a"});
  CHECK(list.retired() == Names{"a"});
  CHECK(send(list, named("c"))->retired == Names{"a", "b"});
  list.settle(Outcome::WRITTEN, {});
  CHECK(list.retired().empty());
  list.settle(Outcome::FAILED, {});  // nothing was sent
  CHECK(list.names() == Names{"c"});
}

TEST_CASE("A name that is to be deleted is not deleted once a checkpoint has it again") {
  SavedList list(1);
  save(list, named("a"));
  send(list, named("b"));
  list.settle(Outcome::WRITTEN, {"a"});
  CHECK(send(list, named("a"))->retired == Names{"b"});
  list.settle(Outcome::WRITTEN, {});
  CHECK(list.retired().empty());
}

TEST_CASE("Notes that were not written are sent again") {
  SavedList list(-1, best_of_metric());
  save(list, named("a", 1), {.weights = 1});
  list.add_metrics(1, {{"eval/a", 0.5}});
  for (const Outcome outcome : {Outcome::FAILED, Outcome::IN_PLACE, Outcome::WRITTEN}) {
    const auto sent = send(list, named("b", 2), {.weights = 2});
    REQUIRE(sent->notes.size() == 1);
    CHECK(sent->notes[0].id == "id-a-1");
    CHECK_FALSE(list.has_notes());
    list.settle(outcome, {});
    CHECK(list.has_notes() == (outcome != Outcome::WRITTEN));
  }
}

TEST_CASE("A name is given again to the same weights, to a later moment, and to what is gone, and else to none") {
  struct Row {
    const char* why;
    Saved there;
    std::int64_t batch;
    Planned planned;
    bool keeps_best;
    std::string name;
  };
  const auto at = [](std::int64_t batch, std::uint64_t weights, bool by_hand = false) {
    return Saved{.name = "a", .by_hand = by_hand, .batch = batch, .weights = weights};
  };
  const std::vector<Row> rows = {
      {"the same weights", at(1, 7), 1, {.weights = 7}, false, "a"},
      {"the same weights, by hand", at(1, 7), 1, {.by_hand = true, .weights = 7}, true, "a"},
      {"the same weights of another fit", at(1, 7), 1, {.weights = 7, .fit = 1}, false, "a-2"},
      {"others of the same moment", at(1, 7), 1, {.weights = 8}, false, "a-2"},
      {"others of a later moment", at(1, 7), 2, {.weights = 8}, false, "a"},
      {"others of a later moment, where it may be the best", at(1, 7), 2, {.weights = 8}, true, "a-2"},
      {"one name for all", at(1, 7), 1, {.weights = 8, .is_rolling = true}, false, "a"},
      {"one by hand is not replaced by others", at(1, 7, true), 2, {.weights = 8}, false, "a-2"},
      {"by hand again", at(1, 7, true), 2, {.by_hand = true, .weights = 8}, true, "a"},
      {"of a count of time before", at(-1, 7), 2, {.weights = 8}, false, "a-2"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.why);
    SavedList list(-1, row.keeps_best ? std::optional(best_of_metric()) : std::nullopt);
    Manifest there = named("a", row.there.batch);
    save(list, there, {.by_hand = row.there.by_hand, .weights = row.there.weights});
    CHECK(list.choose_name(named("a", row.batch), row.planned, kEmptyFolder).name == row.name);
    SavedList::Folder gone = kEmptyFolder;
    gone.is_gone = [](const std::string&) { return true; };
    CHECK(list.choose_name(named("a", row.batch), row.planned, gone).name == "a");
    SavedList::Folder taken = kEmptyFolder;
    taken.is_free = [](const std::string& name) { return name != "a-2"; };
    CHECK(list.choose_name(named("a", row.batch), row.planned, taken).name == (row.name == "a-2" ? "a-3" : row.name));
  }
}

TEST_CASE("The same weights under the same name keep the value that they have") {
  SavedList list(-1, best_of_metric());
  save(list, named("a", 1, {{"eval/a", 0.5}}), {.weights = 1});
  CHECK(list.choose_name(named("a", 1), {.weights = 1}, kEmptyFolder).value == 0.5);
  CHECK_FALSE(list.choose_name(named("b", 1), {.weights = 1}, kEmptyFolder).value);
}

TEST_CASE("One that was saved by hand is found under the name that it was given, also if it got another") {
  SavedList list;
  save(list, named("a", 1), {.weights = 1});
  CHECK(list.find_by_hand("a") == nullptr);
  save(list, named("a-2", 1), {.by_hand = true, .weights = 2});
  CHECK(list.find_by_hand("a")->name == "a-2");
}

TEST_CASE("A manifest gives a loaded list the value that it lacks, and gets the one that it lacks itself") {
  SavedList list(-1, best_of_metric());
  save(list, named("with", 1, {{"eval/a", 0.5}}));
  save(list, named("without", 2));
  const StateDict state = state_of(list);
  SavedList loaded(-1, best_of_metric());
  StateVisitor visit = StateVisitor::loading(state, "saver");
  loaded.visit_state(visit, 0, 2, {});
  loaded.compare("with", named("with", 1));
  loaded.compare("without", named("without", 7, {{"eval/a", 0.1}}));  // of another batch
  CHECK_FALSE(loaded.find("without")->has_value());
  loaded.compare("without", named("without", 2, {{"eval/a", 0.9}}));
  CHECK(loaded.best()->name == "without");
  CHECK_FALSE(loaded.has_notes());
  loaded.queue_loaded();
  const std::vector<Note> notes = loaded.take_notes();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].name == "with");
  CHECK(notes[0].metrics == Metrics{{"eval/a", 0.5}});
}

// The same, by copies of all that there is: what is planned is done to one, which is thrown away if it fails.
class Copies {
 public:
  Copies(std::int64_t keep, bool has_best) : keep_(keep), has_best_(has_best) {}

  void plan(const Manifest& manifest, const Planned& planned) {
    if (is_planned_) now_ = before_;
    is_planned_ = true;
    before_ = now_;
    ++now_.number;
    Saved next{.name = manifest.name,
               .value = value_of(manifest.metrics),
               .by_hand = planned.by_hand,
               .batch = manifest.time.batch,
               .weights = planned.weights};
    for (const Saved& one : now_.saved) next.by_hand = next.by_hand || (one.name == next.name && one.by_hand);
    std::erase_if(now_.saved, [&](const Saved& one) { return one.name == next.name; });
    std::erase(now_.retired, next.name);
    now_.saved.push_back(next);
    Retention kept = retain(std::move(now_.saved), keep_, has_best_ ? std::optional(Better::HIGHER) : std::nullopt);
    now_.saved = std::move(kept.keep);
    now_.retired.insert(now_.retired.end(), kept.remove.begin(), kept.remove.end());
  }
  void send() {
    is_planned_ = false;
    sent_ = std::exchange(now_.retired, {});
    now_.parent = now_.saved.back().name;
  }
  void settle(Outcome outcome, const Names& undeleted) {
    if (outcome == Outcome::FAILED) now_ = before_;
    now_.retired.insert(now_.retired.end(), undeleted.begin(), undeleted.end());
  }
  void drop_plan() {
    if (std::exchange(is_planned_, false)) now_ = before_;
  }
  void add_metrics(std::uint64_t weights, double value) {
    if (!has_best_) return;
    for (Copy* const copy : {&now_, &before_})
      for (Saved& one : copy->saved)
        if (one.weights == weights && !one.has_value()) one.value = value;
  }
  void forget_moments() {
    for (Copy* const copy : {&now_, &before_})
      for (Saved& one : copy->saved)
        if (one.batch > 0) one.batch = -1;
  }

  struct Copy {
    std::vector<Saved> saved;
    Names retired;
    std::string parent;
    std::int64_t number = 0;
  };
  const Copy& now() const { return now_; }
  const Names& sent() const { return sent_; }

 private:
  double value_of(const Metrics& metrics) const {
    return has_best_ && metrics.contains("eval/a") ? metrics.at("eval/a") : NAN;
  }

  std::int64_t keep_;
  bool has_best_, is_planned_ = false;
  Copy now_, before_;
  Names sent_;
};

void check_equal(SavedList& list, const Copies& copies) {
  const Copies::Copy& expected = copies.now();
  const StateDict state = state_of(list);
  StateVisitor visit = StateVisitor::loading(state, "saver");
  Names saved, by_hand, retired;
  std::vector<double> values;
  std::vector<std::int64_t> batches;
  std::int64_t number = 0;
  visit("saved", saved);
  visit("by_hand", by_hand);
  visit("retired", retired);
  visit("values", values);
  visit("batches", batches);
  visit("number", number);
  REQUIRE(saved.size() == expected.saved.size());
  Names hands;
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const Saved& one = expected.saved[i];
    CHECK(saved[i] == one.name);
    CHECK(batches[i] == one.batch);
    CHECK((values[i] == one.value || (std::isnan(values[i]) && !one.has_value())));
    if (one.by_hand) hands.push_back(one.name);
  }
  CHECK(by_hand == hands);
  CHECK(retired == expected.retired);
  CHECK(number == expected.number);
  CHECK(list.names() == saved);
}

TEST_CASE("In random programs a list is that of a copy which is kept if the write succeeds, else thrown away") {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto any = [&](std::uint32_t below) { return static_cast<std::int64_t>(random() % below); };
    const std::int64_t keep = any(4) == 0 ? -1 : 1 + any(3);
    const bool has_best = any(2) == 0;
    SavedList list(keep, has_best ? std::optional(best_of_metric()) : std::nullopt);
    Copies copies(keep, has_best);
    bool is_sent = false;
    std::optional<Manifest> planned;
    std::uint64_t weights = 1;
    for (int step = 0; step < 60; ++step) {
      CAPTURE(step);
      const std::int64_t what = any(8);
      if (what <= 1 && !is_sent) {
        Metrics metrics;
        if (any(3) == 0) metrics["eval/a"] = 0.1 * static_cast<double>(any(10));
        planned = named(join("ck", any(6)), step + 1, std::move(metrics));
        weights += static_cast<std::uint64_t>(any(2));
        const Planned how{.by_hand = any(4) == 0, .weights = weights};
        list.plan(*planned, how);
        copies.plan(*planned, how);
      } else if (what <= 3 && planned) {
        Manifest manifest = *std::exchange(planned, std::nullopt);
        const std::string parent = copies.now().parent;
        const auto sent = list.send(manifest);
        copies.send();
        REQUIRE(sent);
        CHECK(sent->retired == copies.sent());
        CHECK(manifest.parent == parent);
        CHECK(manifest.number == copies.now().number);
        is_sent = true;
      } else if (what <= 5 && std::exchange(is_sent, false)) {
        const auto outcome = static_cast<Outcome>(any(3));
        Names undeleted = outcome == Outcome::FAILED ? Names() : copies.sent();
        if (outcome == Outcome::WRITTEN && any(2) == 0) undeleted.clear();
        list.settle(outcome, undeleted);
        copies.settle(outcome, undeleted);
      } else if (what == 6) {
        const double value = 0.1 * static_cast<double>(any(10));
        list.add_metrics(weights, {{"eval/a", value}});
        copies.add_metrics(weights, value);
      } else if (any(10) == 0) {
        list.forget_moments();
        copies.forget_moments();
      } else if (std::exchange(planned, std::nullopt)) {
        list.drop_plan();
        copies.drop_plan();
      }
      check_equal(list, copies);
    }
  }
}

}  // namespace
}  // namespace composer::saving::saved_list_test
