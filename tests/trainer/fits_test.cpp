// A program of several fits that is started again does what is left of them and no more: those with a duration, those
// that count from zero again, and loops of its own. A fit after one that a signal has ended returns at once.
#include <csignal>
#include <exception>
#include <functional>

#include "composer/core/error.h"
#include "composer/optim/reduce_on_plateau.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::fits_test {
namespace {

struct Killed : std::exception {};

// Whose model has a memory, and whose data is shuffled. No max_duration.
TrainerOptions options_in(const Folder& folder) {
  TrainerOptions options = tiny_options();
  options.model = model_with_memory();
  options.train_dataloader = data::in_memory(tiny_data(16), {.batch_size = 4, .shuffle = true});
  options.max_duration = {};
  options.seed = 3;
  options.save_folder = folder / "ck";
  options.save_interval = "1ba";
  return options;
}

struct Result {
  at::Tensor weights;
  Timestamp timestamp;
  std::int64_t trained = 0;  // batches, by this process
};

using Program = std::function<void(Trainer&)>;

// Killed, as far as the disk can tell, when it begins its batch of that number; -1: not.
Result run(TrainerOptions options, const Program& program, std::int64_t dies_at = -1) {
  std::int64_t trained = 0;
  options.callbacks.add(At([&](Event event, const State&) {
    if (event == Event::BATCH_START && trained++ == dies_at) throw Killed();
  }));
  Trainer trainer(std::move(options));
  if (dies_at < 0)
    program(trainer);
  else
    CHECK_THROWS(program(trainer));
  return {weights_of(trainer), trainer.state().timestamp, trained};
}

void check_as_uninterrupted(const Program& program, const std::function<TrainerOptions(const Folder&)>& options) {
  const Folder whole_folder;
  const Result whole = run(options(whole_folder), program);
  for (std::int64_t batch = 1; batch < whole.trained; ++batch) {
    CAPTURE(batch);
    const Folder folder;
    run(options(folder), program, batch);
    const Result resumed = run(options(folder), program);
    CHECK(resumed.trained == whole.trained - batch);
    CHECK(resumed.weights.equal(whole.weights));
    CHECK(resumed.timestamp.epoch == whole.timestamp.epoch);
    CHECK(resumed.timestamp.batch == whole.timestamp.batch);
    const Result again = run(options(folder), program);
    CHECK(again.trained == 0);
    CHECK(again.weights.equal(whole.weights));
  }
}

TEST_CASE("A fit with a duration that is started again ends where it would have ended, and then does nothing") {
  check_as_uninterrupted([](Trainer& trainer) { trainer.fit("2ep"); }, options_in);
  check_as_uninterrupted([](Trainer& trainer) { trainer.fit("5ba"); }, options_in);
}

TEST_CASE("Fits one after another that are started again train what is left of each, killed after any batch") {
  check_as_uninterrupted(
      [](Trainer& trainer) {
        trainer.fit("1ep");
        trainer.fit("3ba");
        trainer.fit("1ep");
      },
      options_in);
}

TEST_CASE("A fit that counts from zero again is not begun again by a program that is started again") {
  check_as_uninterrupted(
      [](Trainer& trainer) {
        trainer.fit("5ba");
        trainer.fit({.duration = "6ba", .reset_time = true});
      },
      options_in);
  check_as_uninterrupted(
      [](Trainer& trainer) {
        trainer.fit("3ba");
        trainer.fit({.reset_time = true});
      },
      options_in);
}

TEST_CASE("A plain fit and one with a duration after it are gone on with after a kill in either") {
  check_as_uninterrupted(
      [](Trainer& trainer) {
        trainer.fit();
        trainer.fit("1ep");
      },
      [](const Folder& folder) {
        TrainerOptions options = options_in(folder);
        options.max_duration = "1ep";
        return options;
      });
}

TEST_CASE("Fits with a loader, a schedule and an evaluator of their own go on after a kill with what these remember") {
  const Program program = [](Trainer& trainer) {
    const auto plateau = [] {
      return optim::reduce_on_plateau({.monitor = "CrossEntropy", .dataloader_label = "own", .patience = "1ba"});
    };
    const auto evaluator = [] { return Evaluator{.label = "own", .dataloader = tiny_loader(5, 5)}; };
    for (const std::int64_t batch_size : {4, 2})
      trainer.fit({.train_dataloader = data::in_memory(tiny_data(12), {.batch_size = batch_size, .shuffle = true}),
                   .duration = "1ep",
                   .schedulers = {plateau()},
                   .eval_dataloader = evaluator(),
                   .eval_interval = "1ba"});
  };
  check_as_uninterrupted(program, options_in);
}

TEST_CASE("Loops of one's own with durations are gone on with after a kill in any of them") {
  check_as_uninterrupted(
      [](Trainer& trainer) {
        for (const Time& duration : {Time("3ba"), Time("2ba"), Time("4ba")}) {
          trainer.begin({.duration = duration});
          while (!trainer.done()) trainer.step();
          CHECK_FALSE(trainer.step());
          trainer.end();
        }
      },
      options_in);
}

TEST_CASE("A program that is started again with a longer duration trains on to the new end") {
  const Folder folder;
  run(options_in(folder), [](Trainer& trainer) { trainer.fit("5ba"); });
  const Result longer = run(options_in(folder), [](Trainer& trainer) { trainer.fit("7ba"); });
  CHECK(longer.trained == 2);
  CHECK(longer.timestamp.batch == 7);
}

TEST_CASE("What a program that is started again has finished is told in one line") {
  const Folder folder;
  const Program program = [](Trainer& trainer) {
    trainer.fit("2ba");
    trainer.fit("2ba");
    trainer.fit("2ba");
  };
  run(options_in(folder), program, 5);
  const Warnings warnings;
  run(options_in(folder), program);
  CHECK(warnings.say("fit: the first 2 of this program's fits had ended before "));
  CHECK(warnings.say("resumed from "));
  CHECK(warnings.texts.size() == 2);
}

TEST_CASE("A fit that follows an error is the same fit, in a program that is started again as well") {
  const Folder folder;
  {
    TrainerOptions options = options_in(folder);
    options.callbacks.add(At([n = 0](Event event, const State&) mutable {
      if (event == Event::BATCH_START && ++n == 3) throw Killed();
    }));
    Trainer trainer(std::move(options));
    CHECK_THROWS(trainer.fit("5ba"));
    trainer.begin({.duration = "5ba"});
    trainer.step();
    trainer.save_checkpoint("by-hand");
  }
  const Result result = run(options_in(folder), [](Trainer& trainer) { trainer.fit("5ba"); });
  CHECK(result.timestamp.batch == 2 + 5);  // the second try has begun at batch 2
}

TEST_CASE("After a signal has ended a fit, those after it return at once, until the program clears the request") {
  TrainerOptions options = tiny_options();
  options.handle_signals = true;
  const auto log = std::make_shared<EventLog>();
  options.callbacks = {log, At([](Event event, const State& state) {
                         if (event == Event::BATCH_START && state.timestamp.batch == 1) std::raise(SIGTERM);
                       })};
  Trainer trainer(std::move(options));
  trainer.fit("1ep");
  REQUIRE(trainer.state().timestamp.batch == 2);
  log->names.clear();
  trainer.fit("3ep");
  trainer.begin({.duration = "1ep"});
  CHECK(trainer.done());
  CHECK_FALSE(trainer.step());
  trainer.end();
  CHECK(trainer.interrupted_by() == SIGTERM);
  CHECK(log->names.empty());
  trainer.state().stop.clear();
  trainer.fit("1ep");
  CHECK(trainer.interrupted_by() == 0);
  CHECK(trainer.state().timestamp.epoch == 1);
}

TEST_CASE("A program of several fits that a signal has ended trains all that is left when it is started again") {
  const Folder folder;
  const Program program = [](Trainer& trainer) {
    trainer.fit("3ba");
    trainer.fit("3ba");
  };
  const Folder other;
  const Result whole = run(options_in(other), program);
  for (const std::int64_t batch : {0, 1, 4}) {
    const Folder interrupted;
    TrainerOptions options = options_in(interrupted);
    options.handle_signals = true;
    options.callbacks.add(At([batch](Event event, const State& state) {
      if (event == Event::BATCH_START && state.timestamp.batch == batch) std::raise(SIGTERM);
    }));
    run(std::move(options), program);
    const Result resumed = run(options_in(interrupted), program);
    CHECK(resumed.weights.equal(whole.weights));
    CHECK(resumed.trained == 6 - (batch + 1));
  }
}

}  // namespace
}  // namespace composer::test::fits_test
