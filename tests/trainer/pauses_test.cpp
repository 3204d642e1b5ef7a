// However a program loops, and however a fit ends: one verdict says whether it was only paused.
#include <csignal>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/rand.h>

#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/threshold_stopper.h"
#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/run.h"
#include "composer/optim/parameter_group.h"
#include "composer/optim/reduce_on_plateau.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/figure.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::pauses_test {
namespace {

enum class Loop : std::uint8_t { FIT, STEP, DONE, COUNTED };
constexpr Loop kLoops[] = {Loop::FIT, Loop::STEP, Loop::DONE, Loop::COUNTED};
const char* text_of(Loop loop) {
  constexpr const char* kTexts[] = {"fit()", "while (step()) {}", "while (!done()) step()", "a count of steps"};
  return kTexts[static_cast<int>(loop)];
}

// A fit that ends by itself at `batch`; where the caller leaves it, all loops do so there.
void fit(Trainer& trainer, Loop loop, std::int64_t batch, bool is_left = false) {
  if (loop == Loop::FIT) return trainer.fit();
  const auto goes_on = [&] { return !is_left || trainer.state().timestamp.batch < batch; };
  trainer.begin();
  if (loop == Loop::STEP)
    while (goes_on() && trainer.step()) {
    }
  if (loop == Loop::DONE)
    while (goes_on() && !trainer.done()) trainer.step();
  if (loop == Loop::COUNTED)
    while (trainer.state().timestamp.batch < batch) trainer.step();
  trainer.end();
}

struct Way {
  const char* name;
  std::int64_t batch;  // after which it ends
  void (*end)(const State& state);
  const char*
      expected;  // what is judged, the learning rate, where the fit after it ends, and whether its beginning is saved
  bool is_left = false;
};

std::string told_of(const Way& way, Loop loop) {
  const Folder folder;
  const Warnings quiet;
  const auto figures = std::make_shared<Figures>();
  for (std::int64_t batch = 1; batch <= 16; ++batch) figures->by_batch[batch] = batch % 4 == 2 ? 0.9 : 0.5;
  TrainerOptions options = tiny_options();
  options.max_duration = "4ep";
  options.handle_signals = true;
  options.save_folder = folder / "ck";
  options.eval_dataloader = {{.label = "eval",
                              .dataloader = tiny_loader(4, 4),
                              .metrics = Metrics(std::make_shared<Figure>(figures, Better::HIGHER))}};
  options.schedulers = {optim::reduce_on_plateau({.monitor = "Figure", .factor = 0.5, .patience = "1ep"})};
  std::string told, id;
  const auto newest = [&] {
    const auto all = saving::list_checkpoints(folder / "ck");
    return all.empty() ? std::string() : all.back().manifest.id;
  };
  bool first = true;
  options.callbacks = {
      callbacks::ThresholdStopper({.monitor = "Figure", .dataloader_label = "eval", .threshold = 0.95}),
      At([&](Event event, const State& state) {
        const std::int64_t batch = state.timestamp.batch;
        if (event == Event::BATCH_END) figures->batch = batch;
        if (event == Event::BATCH_END && first && batch == way.batch) way.end(state);
        if (event == Event::FIT_START && !first && newest() != id) told += " saved";
        if (event == Event::FIT_END && state.run->pauses()) told += " pauses";
        if (event == Event::EVAL_END && !state.run->pauses()) told += join(' ', batch);
      })};
  Trainer trainer(std::move(options));
  const auto rate = [&] { return optim::learning_rates(*trainer.state().optimizer).at(0); };
  fit(trainer, loop, way.batch, way.is_left);
  CHECK(trainer.state().timestamp.batch == way.batch);
  told += join(" at ", rate(), ';');
  first = false;
  id = newest();
  if (trainer.interrupted_by() != 0) trainer.state().stop.clear();
  try {
    fit(trainer, loop, 16);
    told += join(" at ", rate());
  } catch (const ConfigError&) {
    told += " nothing to do";
  }
  CHECK(trainer.state().timestamp.batch == 16);
  return told;
}

TEST_CASE("However a program loops, what a fit is judged by, saves and leaves to the next one depends on how it ends") {
  for (const Way& way : {
           Way{"nothing", 6, [](const State&) {}, " 4 6 at 0.1; 8 12 16 at 0.05", true},
           Way{"the limit", 16, [](const State&) {}, " 4 8 12 16 at 0.05; nothing to do"},
           Way{"a pause", 6, [](const State& state) { state.stop.ask("a pause"); },
               " 4 pauses at 0.1; saved 8 12 16 at 0.05"},
           Way{"a pause at the end of an epoch", 8, [](const State& state) { state.stop.ask("a pause"); },
               " 4 8 pauses at 0.1; saved 12 16 at 0.05"},
           Way{"a pause at the limit", 16, [](const State& state) { state.stop.ask("a pause"); },
               " 4 8 12 16 at 0.05; nothing to do"},
           Way{"a stopper", 6, [](const State& state) { state.stop.ask("enough", Stop::FINISHED); },
               " 4 6 at 0.1; 8 12 16 at 0.05"},
           Way{"a signal", 6, [](const State&) { std::raise(SIGTERM); }, " 4 pauses at 0.1; saved 8 12 16 at 0.05"},
       }) {
    CAPTURE(way.name);
    for (const Loop loop : kLoops) {
      if (way.is_left && loop == Loop::FIT) continue;
      CAPTURE(text_of(loop));
      CHECK(told_of(way, loop) == way.expected);
    }
  }
}

TEST_CASE("A pause changes neither rates nor when a stopper ends the run, in any loop") {
  const auto judged = [](Loop loop, bool pauses) {
    const auto figures = std::make_shared<Figures>();
    for (std::int64_t batch = 1; batch <= 32; ++batch) figures->by_batch[batch] = batch % 4 == 2 ? 0.1 * batch : 0.5;
    const Warnings warnings;
    TrainerOptions options = tiny_options();
    options.max_duration = "8ep";
    options.eval_dataloader = {{.label = "eval",
                                .dataloader = tiny_loader(4, 4),
                                .metrics = Metrics(std::make_shared<Figure>(figures, Better::HIGHER))}};
    options.schedulers = {optim::reduce_on_plateau({.monitor = "Figure", .factor = 0.5, .patience = "1ep"})};
    options.callbacks = {callbacks::EarlyStopper({.monitor = "Figure", .dataloader_label = "eval", .patience = "21ba"}),
                         At([&](Event event, const State& state) {
                           if (event != Event::BATCH_END) return;
                           figures->batch = state.timestamp.batch;
                           if (pauses && state.timestamp.batch % 4 == 2) state.stop.ask("the job's time is up");
                         })};
    Trainer trainer(std::move(options));
    std::int64_t next = pauses ? 2 : 28;
    do {
      fit(trainer, loop, next);
      next = std::min<std::int64_t>(next + 4, 28);
    } while (trainer.state().stop.asked() && trainer.state().stop.kind() == Stop::PAUSED);
    CHECK(trainer.state().timestamp.batch == 28);
    trainer.close();
    REQUIRE(warnings.texts.size() == 1);
    CHECK(contains(warnings.texts.front(), "EarlyStopper"));
    return optim::learning_rates(*trainer.state().optimizer).at(0);
  };
  for (const Loop loop : kLoops) {
    CAPTURE(text_of(loop));
    CHECK(judged(loop, true) == judged(Loop::FIT, false));
  }
}

TEST_CASE("A loop of given batches that is paused is not judged at its end, however it finds that out") {
  const auto told = [](Loop loop) {
    std::string told;
    TrainerOptions options = tiny_options();
    options.train_dataloader = {};
    options.max_duration = {};
    options.eval_dataloader = tiny_loader(4, 4);
    options.eval_interval = "2ba";
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::BATCH_END && state.timestamp.batch == 3) state.stop.ask("a pause");
      if (event == Event::EVAL_END) told += join(' ', state.timestamp.batch, state.run->pauses() ? " pauses" : "");
    })};
    Trainer trainer(std::move(options));
    trainer.begin();
    if (loop == Loop::STEP)
      while (trainer.step(tiny_data(4))) {
      }
    if (loop == Loop::DONE)
      while (!trainer.done()) trainer.step(tiny_data(4));
    if (loop == Loop::COUNTED)
      for (int i = 0; i < 3; ++i) trainer.step(tiny_data(4));
    trainer.end();
    return told;
  };
  for (const Loop loop : {Loop::STEP, Loop::DONE, Loop::COUNTED}) CHECK(told(loop) == " 2 3 pauses");
}

TEST_CASE("A pause that one rank asks for in the last step of a counted loop is one of all ranks") {
  const auto pauses = dist::test::results_in_ranks(2, [](const std::shared_ptr<dist::World>& world) {
    bool pauses = false;
    TrainerOptions options = tiny_options();
    options.world = world;
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::BATCH_END && state.timestamp.batch == 2 && state.rank == 1) state.stop.ask("a pause");
      if (event == Event::FIT_END) pauses = state.run->pauses();
    })};
    Trainer trainer(std::move(options));
    fit(trainer, Loop::COUNTED, 2);
    return pauses && trainer.state().stop.asked();
  });
  CHECK(pauses == std::vector<bool>{true, true});
}

// Refuses what a fit logs before its first event.
struct Refusing : LoggerDestination {
  explicit Refusing(const bool& given) : fails(given) {}
  void log_hyperparameters(std::span<const LogEntry>, const State&) override {
    if (fails) throw Error("the disk is full");
  }
  const bool& fails;
};

TEST_CASE("A fit that follows a pause and fails before it begins follows it when it is begun again") {
  const Folder folder;
  TrainerOptions options = tiny_options();
  options.save_folder = folder / "ck";
  bool pauses = true, fails = false, is_saved = false;
  std::string id;
  const auto newest = [&] { return saving::list_checkpoints(folder / "ck").back().manifest.id; };
  options.loggers.add(std::make_shared<Refusing>(fails));
  options.algorithms = {AtAlgorithm({Event::BATCH_END}, [](State&) {})};
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BATCH_END && pauses) state.stop.ask("a pause");
    if (event == Event::FIT_START && !id.empty()) is_saved = newest() != id;
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  id = newest();
  pauses = false, fails = true;
  CHECK_THROWS_AS(trainer.fit(), RunError);
  CHECK(newest() == id);
  fails = false;
  trainer.fit();
  CHECK(is_saved);
  CHECK(trainer.state().timestamp.batch == 4);
}

TEST_CASE("Whether there is a save_folder changes nothing of what is trained after a pause") {
  const auto trained = [](Loop loop, bool saves, bool pauses) {
    const Folder folder;
    TrainerOptions options = tiny_options();
    options.model = model_with_memory();
    options.seed = 1;
    options.max_duration = "2ep";
    if (saves) options.save_folder = folder / "ck";
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::FIT_START) at::rand({1});
      if (pauses && event == Event::BATCH_END && state.timestamp.batch == 3) state.stop.ask("a pause");
    })};
    Trainer trainer(std::move(options));
    fit(trainer, loop, pauses ? 3 : 8);
    if (pauses) fit(trainer, loop, 8);
    CHECK(trainer.state().timestamp.batch == 8);
    return weights_of(trainer).clone();
  };
  const at::Tensor whole = trained(Loop::FIT, false, false);
  for (const Loop loop : kLoops)
    for (const bool saves : {false, true}) {
      CAPTURE(text_of(loop));
      CAPTURE(saves);
      CHECK(trained(loop, saves, true).equal(whole));
    }
}

}  // namespace
}  // namespace composer::test::pauses_test
