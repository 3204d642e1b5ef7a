#include "composer/core/event.h"

#include <set>
#include <string>
#include <utility>

#include "composer/core/callback.h"
#include "composer/core/error.h"
#include "composer/core/old_names.h"
#include "composer/core/overrides.h"
#include "composer/core/state.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::event_test {
namespace {

Event event_at(int i) { return static_cast<Event>(i); }

TEST_CASE("There are 40 events, 18 that open, 18 that close and 4 that do neither") {
  int before = 0, after = 0, eval = 0, predict = 0;
  std::set<std::string_view> names;
  for (int i = 0; i < kEventCount; ++i) {
    names.insert(to_string(event_at(i)));
    before += is_before_event(event_at(i));
    after += is_after_event(event_at(i));
    eval += is_eval(event_at(i));
    predict += is_predict(event_at(i));
    CHECK_FALSE((is_before_event(event_at(i)) && is_after_event(event_at(i))));
  }
  CHECK(names.size() == 40);
  CHECK(before == 18);
  CHECK(after == 18);
  CHECK(eval == 10);
  CHECK(predict == 6);
}

TEST_CASE("A name and its upper case are read back to the event, others are refused") {
  for (int i = 0; i < kEventCount; ++i) {
    CHECK(parse_event(name(event_at(i))) == event_at(i));
    CHECK(parse_event(to_string(event_at(i))) == event_at(i));
  }
  CHECK(parse_event("Batch_End") == Event::BATCH_END);
  for (const char* text : {"", "batch", "batchend", "batch_end ", "foo"})
    CHECK_THROWS_AS(parse_event(text), ConfigError);
}

TEST_CASE("The error of a name that is no event's names the event that is meant") {
  const std::pair<const char*, const char*> cases[] = {{"training_start", "fit_start"},
                                                       {"TRAINING_END", "fit_end"},
                                                       {"before_eval_all", "eval_before_all"},
                                                       {"after_eval_all", "eval_after_all"},
                                                       {"batchend", "batch_end"},
                                                       {"batch_ends", "batch_end"},
                                                       {"epochs_start", "epoch_start"},
                                                       {"befor_forward", "before_forward"},
                                                       {"on_train_start", "fit_start"},
                                                       {"on_train_epoch_end", "epoch_end"},
                                                       {"on_train_batch_end", "batch_end"},
                                                       {"ITERATION_COMPLETED", "batch_end"},
                                                       {"on_validation_end", "eval_after_all"}};
  for (const auto& [text, meant] : cases) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(parse_event(text),
                         join("Event: there is no event \"", text, "\"; did you mean \"", meant,
                              "\"? docs/reference/events.md lists the 40 there are")
                             .c_str(),
                         ConfigError);
  }
  for (const char* text : {"", "foo", "batch", "on_train"})
    CHECK_THROWS_WITH_AS(
        parse_event(text),
        join("Event: there is no event \"", text, "\"; docs/reference/events.md lists the 40 there are").c_str(),
        ConfigError);
  CHECK_THROWS_WITH_AS(parse_event("teardown"),
                       "Event: there is no event \"teardown\"; docs/reference/events.md lists the 40 there are. "
                       "Lightning's \"teardown\" does not exist here; override Callback::close() "
                       "(docs/reference/old-names.md)",
                       ConfigError);
}

TEST_CASE("Names of other trainers lead to events that there are, and each stands once for each of them") {
  std::set<std::string> seen;
  for (const OldName& row : old_names()) {
    CAPTURE(row.name);
    CHECK_FALSE((row.ours.empty() && row.note.empty()));
    CHECK(seen.insert(join(row.whose, " ", row.name)).second);
    if (row.kind != NameKind::EVENT) continue;
    CHECK_THROWS_AS(parse_event(row.name), ConfigError);  // it is no event of ours
    if (!row.ours.empty()) CHECK_NOTHROW(parse_event(row.ours));
  }
}

TEST_CASE("A canonical name is what an opening and its closing event share") {
  CHECK(canonical_name(Event::BEFORE_LOAD) == "load");
  CHECK(canonical_name(Event::AFTER_LOAD) == "load");
  CHECK(canonical_name(Event::BATCH_START) == "batch");
  CHECK(canonical_name(Event::EVAL_BEFORE_ALL) == "eval_all");
  CHECK(canonical_name(Event::EVAL_STANDALONE_END) == "eval_standalone");
  CHECK(canonical_name(Event::BATCH_CHECKPOINT) == "batch_checkpoint");
  int opened = 0;
  for (int i = 0; i < kEventCount; ++i)
    for (int j = 0; j < kEventCount; ++j)
      opened += is_before_event(event_at(i)) && is_after_event(event_at(j)) &&
                canonical_name(event_at(i)) == canonical_name(event_at(j));
  CHECK(opened == 18);  // each opening event has its own closing one
}

TEST_CASE("Algorithms are reversed only where the name begins with AFTER_") {
  CHECK(is_reversed(Event::AFTER_LOSS));
  CHECK_FALSE(is_reversed(Event::EVAL_AFTER_FORWARD));
  CHECK_FALSE(is_reversed(Event::BATCH_END));
}

struct Counts : Callback {
  int batch_ends = 0, epoch_ends = 0;
  void batch_end(const State&, Logger&) override { ++batch_ends; }
};
struct Generic : Counts {
  int all = 0;
  void run_event(Event, const State&, Logger&) override { ++all; }
};

TEST_CASE("There is one method an event, and overriding run_event silences them") {
  test::FakeRun run;
  struct All final : Callback {
    std::set<std::string> called;
#define COMPOSER_X(NAME, method, kind) \
  void method(const State&, Logger&) override { called.insert(#method); }
    COMPOSER_EVENTS(COMPOSER_X)
#undef COMPOSER_X
  } all;
  for (int i = 0; i < kEventCount; ++i) {
    all.called.clear();
    all.run_event(event_at(i), run.state, run.logger);
    CHECK(all.called == std::set{std::string(to_string(event_at(i)))});
  }
  Generic generic;
  generic.run_event(Event::BATCH_END, run.state, run.logger);
  CHECK(generic.all == 1);
  CHECK(generic.batch_ends == 0);
}

TEST_CASE("The compiler finds which events a callback listens to") {
  CHECK(events_of<Callback>() == EventSet{});
  CHECK(events_of<Counts>() == EventSet{Event::BATCH_END});
  CHECK(events_of<Generic>() == EventSet::all());
}

}  // namespace
}  // namespace composer::event_test
