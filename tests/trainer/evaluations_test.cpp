#include "composer/trainer/evaluations.h"

#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::test::evaluations_test {
namespace {

EvalRun run_of(const char* label, Interval interval) {
  return {.evaluator = {.label = label}, .feed = Feed(AnyDataSpec(tiny_loader(4, 4)), label, -1), .interval = interval};
}

IntervalMoment batch_counted(std::int64_t batch) {
  return {.boundary = Boundary::BATCH, .previous = {.batch = batch - 1}, .now = {.batch = batch}};
}

std::vector<std::string> labels(const std::vector<EvalRun*>& runs) {
  std::vector<std::string> labels;
  for (const EvalRun* run : runs) labels.push_back(run->feed.label());
  return labels;
}

using Labels = std::vector<std::string>;

TEST_CASE("To ask what is due changes nothing") {
  Evaluations evaluations;
  evaluations.replace({run_of("a", "2ba"), run_of("b", "3ba")});
  const State state;
  for (int i = 0; i < 2; ++i) {
    CHECK(labels(evaluations.due(Event::BATCH_END, batch_counted(2), state)) == Labels{"a"});
    CHECK(labels(evaluations.due(Event::BATCH_END, batch_counted(6), state)) == Labels{"a", "b"});
  }
  CHECK_FALSE(evaluations.has_pending());
}

TEST_CASE("What was due stays pending until it is done, once, in the evaluators' order") {
  Evaluations evaluations;
  evaluations.replace({run_of("a", "2ba"), run_of("b", "2ba"), run_of("c", "3ba")});
  const State state;
  const auto due = evaluations.due(Event::BATCH_END, batch_counted(6), state);
  evaluations.mark_due(due, 6);
  evaluations.mark_due(due, 6);
  CHECK(labels(evaluations.pending()) == Labels{"a", "b", "c"});
  evaluations.done(*due[0]);
  CHECK(labels(evaluations.pending()) == Labels{"b", "c"});
  evaluations.done(*due[2]);
  evaluations.done(*due[1]);
  CHECK_FALSE(evaluations.has_pending());
}

TEST_CASE("Of an evaluator that was replaced nothing stays pending") {
  Evaluations evaluations;
  evaluations.replace({run_of("a", "2ba"), run_of("b", "2ba")});
  const State state;
  evaluations.mark_due(evaluations.due(Event::BATCH_END, batch_counted(2), state), 2);
  evaluations.replace({run_of("c", "2ba")});
  CHECK(evaluations.pending().empty());
  CHECK_FALSE(evaluations.has_pending());
}

TEST_CASE("At the end of the fit those are due that were not due at this batch") {
  Evaluations evaluations;
  evaluations.replace({run_of("a", "2ba"), run_of("b", "100ba"), run_of("never", "0ba")});
  const State state;
  evaluations.mark_due(evaluations.due(Event::BATCH_END, batch_counted(2), state), 2);
  IntervalMoment end{.last = true, .previous = {.batch = 1}, .now = {.batch = 2}};
  CHECK(labels(evaluations.due(Event::FIT_END, end, state)) == Labels{"b"});
  evaluations.count_from_zero();
  CHECK(labels(evaluations.due(Event::FIT_END, end, state)) == Labels{"a", "b"});
  CHECK_FALSE(evaluations.has_pending());
}

TEST_CASE(
    "What was due is due again at the end of the fit if the weights have changed since, also in a run that goes on") {
  const State state;
  const IntervalMoment end{.last = true, .previous = {.batch = 1}, .now = {.batch = 2}};
  Evaluations evaluations, resumed;
  evaluations.replace({run_of("a", "2ba")});
  resumed.replace({run_of("a", "2ba")});
  evaluations.mark_due(evaluations.due(Event::BATCH_END, batch_counted(2), state), 2, 7);
  for (const std::uint64_t weights : {7, 8}) {
    const bool changed = weights == 8;
    CHECK(evaluations.due(Event::FIT_END, end, state, weights).empty() == !changed);
    StateDict saved;
    StateVisitor saving = StateVisitor::saving(saved), loading = StateVisitor::loading(saved, "");
    evaluations.visit_evaluated(saving, weights);
    resumed.visit_evaluated(loading, 1);
    CHECK(resumed.due(Event::FIT_END, end, state, 1).empty() == !changed);
  }
}

TEST_CASE("Who goes on knows what is pending and when each was due") {
  const State state;
  StateDict saved;
  {
    Evaluations evaluations;
    evaluations.replace({run_of("a", "2ba"), run_of("b", "3ba")});
    evaluations.mark_due(evaluations.due(Event::BATCH_END, batch_counted(2), state), 2);
    StateVisitor visit = StateVisitor::saving(saved);
    evaluations.visit_pending(visit);
    evaluations.visit_evaluated(visit, 0);
  }
  Evaluations evaluations;
  evaluations.replace({run_of("b", "3ba"), run_of("a", "2ba")});
  StateVisitor visit = StateVisitor::loading(saved, "");
  evaluations.visit_pending(visit);
  evaluations.visit_evaluated(visit, 0);
  CHECK(labels(evaluations.pending()) == Labels{"a"});
  CHECK(evaluations.runs()[1].last_due_batch == 2);
}

}  // namespace
}  // namespace composer::test::evaluations_test
