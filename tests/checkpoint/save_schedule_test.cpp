#include "composer/checkpoint/save_schedule.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/checkpoint/counted_run.h"
#include "tests/support/doctest.h"

namespace composer::saving::save_schedule_test {
namespace {

using Last = SaveSchedule::Last;

TEST_CASE("What there is when a fit ends is saved, or not, as row for row says") {
  struct Row {
    const char* why;
    Interval interval;
    std::optional<Last> last;
    std::uint64_t weights;  // of now, which is after 4 batches and an epoch
    OptionalTime max_duration;
    bool is_finished;
    std::uint64_t begun;
    bool is_saved;
  };
  const Moment now{.batch = 4, .ends = 1}, within_epoch{.batch = 4, .ends = 0}, before{.batch = 3, .ends = 0};
  const OptionalTime none, reached = Time("1ep"), later = Time("2ep");
  const auto on_request = [](Event, const State&) { return false; };
  const std::vector<Row> rows = {
      {"nothing was saved", "1ep", {}, 7, reached, false, 0, false},
      {"an earlier batch was saved", "1ep", Last{.moment = before, .weights = 7}, 7, reached, false, 0, false},
      {"an interval of zero asks for none", "0ep", {}, 7, reached, false, 0, true},
      {"a function alone says what is due at the limit", on_request, {}, 7, reached, false, 0, true},
      {"and not before", on_request, {}, 7, later, false, 0, false},
      {"a run without a limit goes on", on_request, {}, 7, none, false, 0, false},
      {"complete, with the same weights", "1ep", Last{.moment = now, .weights = 7}, 7, reached, false, 0, true},
      {"complete, saved before its epoch's end", "1ep", Last{.moment = within_epoch, .weights = 7}, 7, reached, false,
       0, true},
      {"complete, with others since", "1ep", Last{.moment = now, .weights = 6}, 7, reached, false, 0, false},
      {"complete, with others that the program has set", "1ep", Last{.moment = now, .weights = 6}, 7, reached, false, 7,
       true},
      {"stopped", "1ep", Last{.moment = now, .weights = 6}, 7, later, false, 0, true},
      {"stopped, saved before its epoch's end", "1ep", Last{.moment = within_epoch, .weights = 7}, 7, later, false, 0,
       false},
      {"over for good, which is not saved", "1ep", Last{.moment = now, .weights = 7}, 7, later, true, 0, false},
      {"over for good, which is", "1ep", Last{.moment = now, .weights = 7, .knows_finish = true}, 7, later, true, 0,
       true},
      {"begun with weights of the program, and not trained", "1ep", {}, 7, reached, false, 7, true},
      {"trained since", "1ep", {}, 8, reached, false, 7, false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.why);
    const auto run = std::make_shared<CountedRun>();
    run->weights = row.weights;
    State state = state_at(run, 4, 1);
    state.max_duration = row.max_duration;
    if (row.is_finished) state.stop.ask("enough", Stop::FINISHED);
    SaveSchedule schedule(row.interval, /*is_off=*/false);
    schedule.set_last(row.last);
    CHECK(schedule.is_saved(state, row.begun) == row.is_saved);
    CHECK(SaveSchedule(row.interval, /*is_off=*/true).is_saved(state, row.begun));
    state.previous_timestamp.reset();  // nothing is trained
    CHECK(schedule.is_saved(state, row.begun));
  }
}

TEST_CASE("A batch is saved once, by the interval, by a function, or because of a signal") {
  const auto run = std::make_shared<CountedRun>();
  const State state = state_at(run, 4, 1);
  run->at = {.boundary = Boundary::BATCH, .previous = state.timestamp, .now = state.timestamp};
  run->at.previous.batch = 3;
  const auto due = [&](Interval interval, std::int64_t last) {
    SaveSchedule schedule(std::move(interval), /*is_off=*/false);
    if (last >= 0) schedule.set_last(Last{.moment = {.batch = last}});
    return schedule.is_due(Event::BATCH_CHECKPOINT, state);
  };
  CHECK(due("2ba", -1));
  CHECK_FALSE(due("3ba", -1));
  CHECK_FALSE(due("2ba", 4));
  CHECK(due([](Event, const State&) { return true; }, 3));
  CHECK_FALSE(due([](Event, const State&) { return false; }, 3));
  run->is_interrupted = true;
  CHECK(due([](Event, const State&) { return false; }, 3));
  CHECK_FALSE(SaveSchedule("1ba", /*is_off=*/true).is_due(Event::BATCH_CHECKPOINT, state));
}

TEST_CASE("One that could not be written gives its place back to the one before") {
  SaveSchedule schedule("1ep", /*is_off=*/false);
  CHECK(schedule.last_batch() == -1);
  CHECK_FALSE(schedule.set_last(Last{.moment = {.batch = 4}}));
  schedule.set_finished();
  const std::optional<Last> before = schedule.set_last(Last{.moment = {.batch = 8}});
  CHECK_FALSE(schedule.last()->knows_finish);
  schedule.set_last(before);
  CHECK(schedule.last_batch() == 4);
  CHECK(schedule.last()->knows_finish);
}

}  // namespace
}  // namespace composer::saving::save_schedule_test
