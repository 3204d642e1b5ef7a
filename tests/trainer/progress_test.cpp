#include "composer/trainer/progress.h"

#include <set>

#include "tests/support/doctest.h"

namespace composer::test::progress_test {
namespace {

TEST_CASE("A limit is reached at its count or beyond, and without one never") {
  struct Row {
    OptionalTime limit;
    bool reached;
  };
  for (const auto& [limit, reached] : {Row{"8ba", true}, Row{"9ba", false}, Row{"2ep", true}, Row{"3ep", false},
                                       Row{"30sp", true}, Row{"0ba", true}, Row{std::nullopt, false}}) {
    CAPTURE(limit.value_or(Time("0ba")));
    CHECK(Progress{.now = {.epoch = 2, .batch = 8, .sample = 32}, .limit = limit}.limit_reached() == reached);
  }
}

TEST_CASE("An epoch is complete between its last batch and its end, if it is known how long it is") {
  CHECK(Progress{.now = {.batch_in_epoch = 4}, .epoch_length = 4}.epoch_is_complete());
  CHECK_FALSE(Progress{.now = {.batch_in_epoch = 3}, .epoch_length = 4}.epoch_is_complete());
  CHECK_FALSE(Progress{.now = {.batch_in_epoch = 0}, .epoch_length = 0}.epoch_is_complete());
  CHECK_FALSE(Progress{.now = {.batch_in_epoch = 4}}.epoch_is_complete());
}

TEST_CASE("Iterations of tokens begin the loader in an order of its own each, those of epochs with the epochs") {
  Progress tokens{.iteration_length = "100tok"}, epochs{.iteration_length = "2ep"};
  std::set<std::int64_t> orders;
  for (int i = 0; i < 12; ++i) {
    orders.insert(tokens.loader_epoch());
    tokens.now = i % 3 == 2 ? tokens.now.to_next_epoch() : tokens.now.to_next_iteration();
    CHECK(epochs.loader_epoch() == i);
    epochs.now = epochs.now.to_next_epoch();
    if (epochs.epoch_iteration_is_over()) epochs.now = epochs.now.to_next_iteration();
  }
  CHECK(orders.size() == 12);
}

TEST_CASE("An iteration is over at its tokens or epochs, and only in its own unit") {
  const Timestamp now{.epoch_in_iteration = 2, .token_in_iteration = 90};
  struct Row {
    OptionalTime length;
    bool tokens, epochs;
  };
  for (const auto& [length, tokens, epochs] :
       {Row{"90tok", true, false}, Row{"91tok", false, false}, Row{"2ep", false, true}, Row{"3ep", false, false},
        Row{std::nullopt, false, false}}) {
    const Progress progress{.now = now, .iteration_length = length};
    CHECK(progress.token_iteration_is_over() == tokens);
    CHECK(progress.epoch_iteration_is_over() == epochs);
    CHECK(progress.iteration_is_over() == (tokens || epochs));
  }
}

TEST_CASE("The moment of an event tells what has ended, between which times") {
  const Progress progress{.now = {.batch = 5}, .previous = Timestamp{.batch = 4}, .limit = "9ba"};
  struct Row {
    Event event;
    std::optional<Boundary> boundary;
  };
  for (const auto& [event, boundary] : {
           Row{Event::BATCH_END, Boundary::BATCH},
           Row{Event::BATCH_CHECKPOINT, Boundary::BATCH},
           Row{Event::EPOCH_END, Boundary::EPOCH},
           Row{Event::EPOCH_CHECKPOINT, Boundary::EPOCH},
           Row{Event::ITERATION_END, Boundary::ITERATION},
           Row{Event::ITERATION_CHECKPOINT, Boundary::ITERATION},
           Row{Event::FIT_END, std::nullopt},
       }) {
    const IntervalMoment moment = progress.moment_of(event, 7);
    CHECK(moment.boundary == boundary);
    CHECK(moment.previous.batch == 4);
    CHECK(moment.now.batch == 5);
    CHECK(moment.max_duration == Time("9ba"));
    CHECK(moment.dataloader_len == 7);
    CHECK_FALSE(moment.last);
  }
}

}  // namespace
}  // namespace composer::test::progress_test
