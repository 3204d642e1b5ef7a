#include "composer/checkpoint/measured_values.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/tensor.h>

#include "composer/checkpoint/save_schedule.h"
#include "composer/checkpoint/saved_list.h"
#include "tests/checkpoint/counted_run.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::saving::measured_values_test {
namespace {

using test::Warnings;

Best accuracy() { return {.metric = "eval/Accuracy", .better = Better::HIGHER}; }

// A run of which checkpoints are saved and values measured.
struct Measured {
  explicit Measured(const Best& best = accuracy())
      : list(-1, best), values(list, schedule, best, OptionNames{}), state(state_at(run, 4)) {
    schedule.begin_fit();
  }

  void save(const std::string& name) {
    Manifest manifest;
    manifest.name = name;
    manifest.time = state.timestamp;
    list.plan(manifest, {.weights = run->weights});
    list.send(manifest);
    list.settle(SavedList::Outcome::WRITTEN, {});
  }
  void measure(double value) { state.metrics.set("eval", "Accuracy", at::tensor(value)); }
  void change_weights() {
    ++run->weights;
    state.metrics.weights_changed();
  }

  std::shared_ptr<CountedRun> run = std::make_shared<CountedRun>();
  SavedList list;
  SaveSchedule schedule{"1ep", /*is_off=*/false};
  MeasuredValues values;
  State state;
};

TEST_CASE("A checkpoint gets the value that was measured on its weights, and none of others") {
  for (const bool changed : {false, true}) {
    CAPTURE(changed);
    Measured run;
    run.save("a");
    if (changed) run.change_weights();
    run.measure(0.5);
    run.values.take_metrics(run.state);
    CHECK(run.list.has_value() == !changed);
    CHECK(run.list.has_notes() == !changed);
  }
}

TEST_CASE("A metric of training is of the weights before the step, whose checkpoint gets it afterwards") {
  Measured run({.metric = "train/Accuracy", .better = Better::HIGHER});
  run.save("a");
  run.values.before_step(run.state);
  run.state.dataloader_label = "train";
  run.state.metrics.set("train", "Accuracy", at::tensor(0.5));
  run.state.metrics.stepped();
  ++run.run->weights;
  run.state.previous_timestamp = run.state.timestamp;
  ++run.state.timestamp.batch;
  run.values.after_step(run.state);
  CHECK(run.list.find("a")->value == 0.5);
}

TEST_CASE("Weights that were evaluated and that no checkpoint has are told once, before the next step") {
  for (const bool is_saved : {false, true}) {
    CAPTURE(is_saved);
    Measured run;
    run.save("a");
    if (is_saved) run.schedule.set_last(SaveSchedule::Last{.moment = moment_of(run.state.timestamp)});
    run.change_weights();
    run.measure(0.5);
    run.values.after_evaluation(run.state);
    const Warnings warnings;
    run.values.before_step(run.state);
    run.values.after_evaluation(run.state);
    run.values.before_step(run.state);
    REQUIRE(warnings.texts.size() == 1);
    CHECK(warnings.say(is_saved ? "since a was saved" : "none was saved there"));
  }
}

TEST_CASE("Weights that the program has set before a run goes on are its own affair, until it trains") {
  Measured run;
  run.values.note_resumed(run.state, /*loaded=*/run.run->weights);
  CHECK(run.values.weights_of_program() == 0);
  run.change_weights();
  run.values.note_resumed(run.state, /*loaded=*/run.run->weights - 1);
  CHECK(run.values.weights_of_program() == run.run->weights);
  run.measure(0.5);
  run.values.after_evaluation(run.state);
  const Warnings warnings;
  run.values.before_step(run.state);
  CHECK(warnings.texts.empty());
  run.values.after_step(run.state);
  CHECK(run.values.weights_of_program() == 0);
}

TEST_CASE("What is evaluated between two fits is nobody's but the program's") {
  Measured run;
  run.save("a");
  run.schedule.end_fit();
  run.change_weights();
  run.measure(0.5);
  run.values.after_evaluation(run.state);
  run.schedule.begin_fit();
  const Warnings warnings;
  run.values.before_step(run.state);
  CHECK(warnings.texts.empty());
}

TEST_CASE("Without checkpoints nothing is taken of what is measured") {
  Measured run;
  run.measure(0.5);
  MeasuredValues none;
  const Warnings warnings;
  none.prefer(Better::HIGHER);
  none.before_step(run.state);
  none.after_step(run.state);
  none.after_evaluation(run.state);
  none.take_metrics(run.state);
  none.warn_without_best(run.state);
  CHECK(warnings.texts.empty());
}

TEST_CASE("Which values are better is what the options say, else what is declared, also later, else guessed") {
  Measured given({.metric = "eval/Accuracy", .better = Better::LOWER});
  given.values.prefer(Better::HIGHER);
  CHECK(given.list.metric().better() == Better::LOWER);
  Measured guessed({.metric = "eval/Accuracy"});
  guessed.values.ask_direction(guessed.state);
  CHECK_FALSE(guessed.list.metric().better());
  const Warnings quiet;
  guessed.measure(0.5);
  guessed.values.ask_direction(guessed.state);
  CHECK(guessed.list.metric().better() == Better::HIGHER);
  guessed.state.metrics.declare("eval", "Accuracy", Better::LOWER);
  guessed.values.ask_direction(guessed.state);
  CHECK(guessed.list.metric().better() == Better::LOWER);
}

TEST_CASE("A run that is over is told if no checkpoint has come to have a value") {
  Measured run;
  run.save("a");
  run.state.max_duration = Time("2ep");
  const Warnings warnings;
  run.values.warn_without_best(run.state);
  CHECK(warnings.texts.empty());  // it goes on
  run.state.max_duration = Time("4ba");
  run.values.warn_without_best(run.state);
  CHECK(warnings.say("save_best: had no effect"));
}

}  // namespace
}  // namespace composer::saving::measured_values_test
