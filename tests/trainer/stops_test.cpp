// Requests to stop: which fit they end, and what a checkpoint keeps of them.
#include <csignal>
#include <thread>

#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/threshold_stopper.h"
#include "composer/checkpoint/folder.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "composer/optim/reduce_on_plateau.h"
#include "tests/support/doctest.h"
#include "tests/support/figure.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::stops_test {
namespace {

// Asks once, when that batch has ended.
At ask_at(std::int64_t batch, Stop::Kind kind = Stop::PAUSED) {
  return At([=](Event event, const State& state) {
    if (event == Event::BATCH_END && state.timestamp.batch == batch) state.stop.ask("enough", kind);
  });
}

TrainerOptions saving_to(const Folder& folder) {
  TrainerOptions options = tiny_options();
  options.max_duration = "3ep";
  options.save_folder = folder / "ck";
  options.save_interval = "1ba";
  return options;
}

TEST_CASE("The first reason counts, unless a later one says that the run is finished") {
  Stop stop;
  stop.ask("time is up");
  stop.ask("later");
  CHECK(stop.why() == "time is up");
  CHECK(stop.kind() == Stop::PAUSED);
  stop.ask("no new best", Stop::FINISHED);
  stop.ask("interrupted");
  CHECK(stop.why() == "no new best");
  CHECK(stop.kind() == Stop::FINISHED);
  stop.answer();
  CHECK(stop.asked());
  CHECK_FALSE(stop.pending());
  stop.ask("again");
  CHECK(stop.pending());
  CHECK(stop.why() == "again");
  CHECK(stop.kind() == Stop::PAUSED);
  stop.clear_answered();
  CHECK(stop.asked());
  stop.answer();
  stop.clear_answered();
  CHECK_FALSE(stop.asked());
  CHECK(stop.why().empty());
}

TEST_CASE("The next fit() goes on after a stop, also if checkpoints have been written meanwhile") {
  for (const Stop::Kind kind : {Stop::PAUSED, Stop::FINISHED})
    for (const bool saves : {false, true}) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(saves);
      const Folder folder;
      TrainerOptions options = saves ? saving_to(folder) : tiny_options();
      options.max_duration = "3ep";
      options.callbacks = {ask_at(2, kind)};
      Trainer trainer(std::move(options));
      trainer.fit();
      CHECK(trainer.state().timestamp.batch == 2);
      trainer.fit();
      CHECK(trainer.state().timestamp.batch == 12);
    }
}

TEST_CASE("A run that was paused trains on when it is resumed, again and again; one that was finished does not") {
  for (const Stop::Kind kind : {Stop::PAUSED, Stop::FINISHED}) {
    CAPTURE(static_cast<int>(kind));
    const Folder folder;
    std::int64_t expected = 0;
    for (int job = 1; job <= 3; ++job) {
      TrainerOptions options = saving_to(folder);
      options.callbacks = {At([&, trained = 0](Event event, const State& state) mutable {
        if (event == Event::BATCH_END && ++trained == 3) state.stop.ask("the job's time is up", kind);
      })};
      Trainer trainer(std::move(options));
      trainer.fit();
      expected = kind == Stop::PAUSED ? expected + 3 : 3;
      CHECK(trainer.state().timestamp.batch == expected);
      if (job > 1 && kind == Stop::FINISHED) CHECK(trainer.state().stop.why() == "the job's time is up");
    }
  }
}

TEST_CASE("A finished run that is resumed trains on with the fit() after that") {
  const Folder folder;
  {
    TrainerOptions options = saving_to(folder);
    options.callbacks = {ask_at(3, Stop::FINISHED)};
    Trainer(std::move(options)).fit();
  }
  Trainer trainer(saving_to(folder));
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 3);
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 12);
}

TEST_CASE("A run that begins from a stopped run's checkpoint is not stopped by it") {
  for (const Stop::Kind kind : {Stop::PAUSED, Stop::FINISHED}) {
    const Folder folder;
    {
      TrainerOptions options = saving_to(folder);
      options.callbacks = {ask_at(4, kind)};
      Trainer(std::move(options)).fit();
    }
    TrainerOptions options = tiny_options();
    options.run_name = "another";
    options.load_path = folder / "ck/latest";
    options.max_duration = "10ep";
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == 40);
  }
}

TEST_CASE("A run that a stopper has finished is finished, also if a signal came at the same time") {
  const Folder folder;
  {
    TrainerOptions options = saving_to(folder);
    options.handle_signals = true;
    options.callbacks = {At([](Event event, const State& state) {
      if (event != Event::BATCH_END || state.timestamp.batch != 2) return;
      std::raise(SIGTERM);
      state.stop.ask("no new best", Stop::FINISHED);
    })};
    Trainer(std::move(options)).fit();
  }
  Trainer trainer(saving_to(folder));
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 2);
  CHECK(trainer.state().stop.why() == "no new best");
}

TEST_CASE("The stoppers finish a run for good") {
  struct Row {
    const char* name;
    void (*add)(TrainerOptions&);
  };
  for (const auto& [name, add] : {
           Row{"EarlyStopper",
               [](TrainerOptions& o) {
                 o.callbacks.add(callbacks::EarlyStopper(
                     {.monitor = "CrossEntropy", .dataloader_label = "eval", .min_delta = 100, .patience = "0ep"}));
               }},
           Row{"ThresholdStopper",
               [](TrainerOptions& o) {
                 o.callbacks.add(callbacks::ThresholdStopper(
                     {.monitor = "CrossEntropy", .dataloader_label = "eval", .threshold = 1e9}));
               }},
       }) {
    CAPTURE(name);
    const Folder folder;
    const auto options = [&, add = add] {
      TrainerOptions options = saving_to(folder);
      options.eval_dataloader = tiny_loader(4, 4);
      add(options);
      return options;
    };
    std::int64_t batch = 0;
    {
      Trainer trainer(options());
      trainer.fit();
      batch = trainer.state().timestamp.batch;
      CHECK(batch < 12);
      CHECK(trainer.state().stop.kind() == Stop::FINISHED);
    }
    Trainer trainer(options());
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == batch);
  }
}

TEST_CASE("To take a snapshot changes nothing that the run does next") {
  TrainerOptions options = tiny_options();
  options.max_duration = "3ep";
  options.callbacks = {ask_at(2, Stop::FINISHED), At([](Event event, const State& state) {
                         if (event == Event::BATCH_CHECKPOINT) state.run->snapshot(false);
                       })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 2);
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 12);
}

TEST_CASE("A request that comes before fit() begins ends that fit, and no other") {
  Trainer trainer(tiny_options());
  trainer.state().stop.ask("cancelled");
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 0);
  CHECK(trainer.state().stop.why() == "cancelled");
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 4);
}

// What a program's controller does.
void ask_from_another_thread(const Stop& stop, const std::string& why) {
  std::thread([&] { stop.ask(why); }).join();
}

TEST_CASE("A request of another thread while a fit ends, fails or is evaluated ends the next one, and no other") {
  struct Row {
    std::string name;
    Event at;
    std::int64_t first, second;  // batches when the fits have ended
  };
  for (const auto& [name, at, first, second] : {
           Row{"while it trains", Event::BATCH_END, 1, 4},
           Row{"while it ends", Event::FIT_END, 4, 4},
           Row{"in an evaluation between fits", Event::EVAL_BATCH_END, 4, 4},
           Row{"while it fails", Event::AFTER_LOSS, 0, 0},
       }) {
    CAPTURE(name);
    TrainerOptions options = tiny_options();
    options.max_duration.reset();
    options.eval_dataloader = tiny_loader(4, 4);
    options.eval_interval = "0ep";
    options.callbacks = {At([at = at, asked = false](Event event, const State& state) mutable {
      if (event != at || std::exchange(asked, true)) return;
      ask_from_another_thread(state.stop, "deadline");
      if (at == Event::AFTER_LOSS) throw std::runtime_error("broken");
    })};
    Trainer trainer(std::move(options));
    if (at == Event::AFTER_LOSS)
      CHECK_THROWS_AS(trainer.fit("1ep"), RunError);
    else
      trainer.fit("1ep");
    CHECK(trainer.state().timestamp.batch == first);
    trainer.eval();
    CHECK(trainer.state().stop.pending() == (first == second));
    trainer.fit("1ep");
    CHECK(trainer.state().timestamp.batch == second);
    CHECK(trainer.state().stop.why() == std::string(first == second ? "deadline" : ""));
    trainer.fit("1ep");
    CHECK(trainer.state().timestamp.batch > second);
  }
}

TEST_CASE("What a callback asks while its fit ends is answered with it, also beside a request of another thread") {
  TrainerOptions options = tiny_options();
  options.max_duration.reset();
  options.callbacks = {At([asks = 0](Event event, const State& state) mutable {
    if (event != Event::FIT_END) return;
    state.stop.ask("no new best", Stop::FINISHED);
    if (asks++ == 1) ask_from_another_thread(state.stop, "deadline");
  })};
  Trainer trainer(std::move(options));
  trainer.fit("1ep");
  CHECK_FALSE(trainer.state().stop.pending());
  trainer.fit("1ep");
  CHECK(trainer.state().timestamp.batch == 8);
  CHECK(trainer.state().stop.pending());
  CHECK(trainer.state().stop.why() == "deadline");
  CHECK(trainer.state().stop.kind() == Stop::PAUSED);
  trainer.fit("1ep");
  CHECK(trainer.state().timestamp.batch == 8);
}

TEST_CASE("end() meets what was asked before it, by whichever thread") {
  TrainerOptions options = tiny_options();
  Trainer trainer(std::move(options));
  trainer.begin();
  trainer.step();
  ask_from_another_thread(trainer.state().stop, "deadline");
  trainer.end();
  CHECK_FALSE(trainer.state().stop.pending());
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 4);
}

TEST_CASE("A stopper that judges an evaluation between two fits does not end the next one") {
  TrainerOptions options = tiny_options();
  options.max_duration = "2ep";
  options.eval_dataloader = tiny_loader(4, 4);
  options.eval_interval = "0ep";
  options.callbacks = {At([](Event event, const State& state) {
    if (event == Event::EVAL_END) state.stop.ask("judged");
  })};
  Trainer trainer(std::move(options));
  trainer.fit("1ep");
  trainer.eval();
  trainer.fit("1ep");
  CHECK(trainer.state().timestamp.epoch == 2);
  trainer.state().stop.ask("cancelled");
  trainer.eval();
  trainer.fit("1ep");
  CHECK(trainer.state().timestamp.epoch == 2);
}

TEST_CASE("A run says once where it was interrupted, from where it goes on, and that it is complete") {
  const Folder folder;
  const auto said = [&](void (*change)(TrainerOptions&)) {
    const Warnings warnings;
    TrainerOptions options = saving_to(folder);
    options.handle_signals = true;
    change(options);
    Trainer trainer(std::move(options));
    trainer.fit();
    return warnings.texts;
  };
  using Texts = std::vector<std::string>;
  const std::string at = folder / "ck";
  const auto interrupt = [](TrainerOptions& o) {
    o.callbacks = {At([](Event event, const State& state) {
      if (event == Event::BATCH_START && state.timestamp.batch == 4) std::raise(SIGINT);
    })};
  };
  CHECK(said(interrupt) ==
        Texts{"interrupted (SIGINT) after batch 5; saved to " + at + "/ep1-ba5; start again to resume"});
  CHECK(said([](TrainerOptions&) {}) == Texts{"resumed from " + at + "/ep1-ba5 (epoch 1, batch 5)"});
  CHECK(said([](TrainerOptions& o) { o.callbacks = {}; })[0].starts_with("this run is complete: ") == true);
  const Texts unsaved = said([](TrainerOptions& o) {
    o.save_folder = "";
    o.callbacks = {At([](Event event, const State&) {
      if (event == Event::BATCH_START) std::raise(SIGTERM);
    })};
  });
  CHECK(unsaved == Texts{"interrupted (SIGTERM) after batch 1; nothing is saved, because there is no save_folder"});
}

}  // namespace
}  // namespace composer::test::stops_test
