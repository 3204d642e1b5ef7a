// Programs that own their loop: begin(), step() and end() in any order, with anything between them.
#include <chrono>
#include <csignal>

#include <ATen/Parallel.h>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/machines.h"
#include "tests/support/tiny.h"

namespace composer::test::own_loop_test {
namespace {

TrainerOptions given_batches() {
  TrainerOptions options = tiny_options();
  options.train_dataloader = {};
  options.max_duration = std::nullopt;
  return options;
}

TEST_CASE("end() saves and evaluates what has been trained, whoever ended the run, and when") {
  struct Row {
    const char* why;
    void (*end)(Trainer&);
  };
  for (const auto& [why, end] : {
           Row{"the caller", [](Trainer&) {}},
           Row{"a request between two steps", [](Trainer& t) { t.state().stop.ask("from another thread"); }},
           Row{"a signal between two steps", [](Trainer&) { std::raise(SIGTERM); }},
       }) {
    for (const bool loader : {true, false}) {
      CAPTURE(why);
      CAPTURE(loader);
      const Folder folder;
      auto log = std::make_shared<EventLog>();
      TrainerOptions options = loader ? tiny_options() : given_batches();
      if (loader) options.max_duration = "10ep";
      options.handle_signals = true;
      options.save_folder = folder / "ck";
      options.eval_dataloader = tiny_loader(4, 4);
      options.callbacks = {log};
      Trainer trainer(std::move(options));
      trainer.begin();
      const auto step = [&, loader = loader] { return loader ? trainer.step() : trainer.step(tiny_data(4)); };
      for (int i = 0; i < 3; ++i) REQUIRE(step());
      end(trainer);
      const bool ended = trainer.state().stop.asked() || std::string(why).starts_with("a signal");
      if (ended) CHECK_FALSE(step());
      trainer.end();
      CHECK(trainer.state().timestamp.batch == 3);
      CHECK(trainer.saved_checkpoints() == std::vector<std::string>{folder / "ck/ep0-ba3"});
      CHECK(saving::list_checkpoints(folder / "ck").size() == 1);
      CHECK(log->count("eval_start") == (trainer.interrupted_by() == 0 ? 1 : 0));
    }
  }
}

TEST_CASE("end() saves nothing twice, and nothing at all if nothing was trained or save_interval is 0") {
  struct Row {
    Interval interval;
    int steps;
    std::size_t saved;
  };
  for (const auto& [interval, steps, saved] :
       {Row{"1ba", 3, 3}, Row{"2ba", 3, 2}, Row{"2ba", 2, 1}, Row{"1ep", 0, 0}, Row{"0ba", 3, 0}}) {
    const Folder folder;
    TrainerOptions options = tiny_options();
    options.save_folder = folder / "ck";
    options.save_interval = interval;
    Trainer trainer(std::move(options));
    trainer.begin();
    for (int i = 0; i < steps; ++i) trainer.step();
    trainer.end();
    CHECK(trainer.saved_checkpoints().size() == saved);
  }
}

TEST_CASE("A function says what is due, and what has not come to its limit is saved all the same") {
  for (const bool ends_early : {true, false}) {
    const Folder folder;
    TrainerOptions options = tiny_options();
    options.save_folder = folder / "ck";
    options.save_interval = [](Event event, const State& state) {
      return event == Event::BATCH_CHECKPOINT && state.timestamp.batch == 1;
    };
    Trainer trainer(std::move(options));
    trainer.begin();
    for (int i = 0; i < (ends_early ? 3 : 9); ++i) trainer.step();
    trainer.end();
    CHECK(trainer.saved_checkpoints().size() == (ends_early ? 2 : 1));
  }
}

TEST_CASE("An epoch whose batches are all trained is closed, whoever ends the fit then") {
  for (const bool asks : {true, false}) {
    auto log = std::make_shared<EventLog>();
    TrainerOptions options = tiny_options();
    options.max_duration = "3ep";
    options.callbacks = {log};
    Trainer trainer(std::move(options));
    trainer.begin();
    for (int i = 0; i < 4; ++i) trainer.step();
    CHECK(log->count("epoch_end") == 0);
    if (asks) {
      trainer.state().stop.ask("enough");
      CHECK_FALSE(trainer.step());
    }
    trainer.end();
    CHECK(log->count("epoch_end") == 1);
    CHECK(log->count("epoch_checkpoint") == 1);
    CHECK(trainer.state().timestamp.epoch == 1);
    trainer.fit();
    CHECK(log->count("epoch_end") == 3);
    CHECK(trainer.state().timestamp.batch == 12);
  }
}

TEST_CASE("A fit without a limit leaves none behind") {
  TrainerOptions options = tiny_options();
  options.max_duration = std::nullopt;
  auto log = std::make_shared<EventLog>();
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  trainer.begin();
  for (int i = 0; i < 9; ++i) CHECK(trainer.step());
  trainer.end();
  CHECK(log->count("epoch_end") == 2);  // one by a step, one by end()
  CHECK_FALSE(trainer.state().max_duration);
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("max_duration: is required"), ConfigError);
  trainer.fit("2ba");
  CHECK(trainer.state().timestamp.batch == 10);
}

TEST_CASE("Schedules apply in a fit without a limit") {
  TrainerOptions options = given_batches();
  options.schedulers = {[](const optim::ScheduleContext& now) { return now.timestamp.batch < 2 ? 1.0 : 0.5; }};
  Trainer trainer(std::move(options));
  trainer.begin();
  for (int i = 0; i < 2; ++i) trainer.step(tiny_data(4));
  CHECK(optim::learning_rates(*trainer.state().optimizer)[0] == doctest::Approx(0.05));
  trainer.end();
}

TEST_CASE("A schedule in shares of the run is refused in a fit without a limit, before anything is trained") {
  for (const optim::Scheduler& schedule : {optim::constant_with_warmup({.t_warmup = "0.1dur"}),
                                           optim::cosine_annealing(), optim::linear({.t_max = "0.5dur"})}) {
    TrainerOptions options = given_batches();
    options.schedulers = {schedule};
    Trainer trainer(std::move(options));
    CHECK_THROWS_WITH_AS(trainer.begin(),
                         doctest::Contains("is a share of the run, whose length is unknown without a max_duration"),
                         ConfigError);
    CHECK(trainer.state().timestamp.batch == 0);
  }
}

TEST_CASE("A batch is given to a fit without a loader, and to no other; the mistake does not end the fit") {
  Trainer trainer(tiny_options());
  trainer.begin();
  CHECK_THROWS_WITH_AS(trainer.step(tiny_data(4)), doctest::Contains("takes its batches from the train loader"),
                       ConfigError);
  while (trainer.step()) {
  }
  trainer.end();
  CHECK(trainer.state().timestamp.batch == 4);

  Trainer without(given_batches());
  without.begin();
  CHECK_THROWS_WITH_AS(without.step(), doctest::Contains("call step(batch)"), ConfigError);
  CHECK(without.step(tiny_data(4)));
  without.end();
  CHECK(without.state().timestamp.batch == 1);
}

TEST_CASE("Given batches belong to one endless epoch, so a duration in epochs is refused") {
  TrainerOptions options = given_batches();
  options.max_duration = "2ep";
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.begin(), doctest::Contains("no epoch ends without a train_dataloader"), ConfigError);
  trainer.begin({.duration = "9ba"});
  int trained = 0;
  while (trainer.step(tiny_data(4))) ++trained;
  trainer.end();
  CHECK(trained == 9);
  CHECK(trainer.state().timestamp.epoch == 0);
  CHECK(trainer.state().timestamp.batch_in_epoch == 9);
}

TEST_CASE("A given batch is trained, also when an iteration is to be ended first") {
  const auto batch = [] {
    Batch batch = tiny_data(4);
    batch.set("input_ids", at::zeros({4, 2}, at::kLong));  // whose number counts as tokens
    return batch;
  };
  TrainerOptions options = given_batches();
  options.iteration_length = "16tok";
  bool fails = true;
  auto log = std::make_shared<EventLog>();
  options.callbacks = {
      log, At([&](Event event, const State& state) {
        if (event == Event::BATCH_CHECKPOINT && state.timestamp.batch == 2 && std::exchange(fails, false))
          throw std::runtime_error("disk full");
      })};
  Trainer trainer(std::move(options));
  trainer.begin();
  CHECK(trainer.step(batch()));
  CHECK_THROWS_AS(trainer.step(batch()), RunError);
  CHECK(log->count("iteration_end") == 0);
  trainer.begin();
  CHECK(trainer.step(batch()));
  CHECK(log->count("iteration_end") == 1);
  CHECK(trainer.state().timestamp.batch == 3);
  trainer.end();
}

TEST_CASE("Iterations of tokens go through all samples, each in an order of its own") {
  Batch data = tiny_data(64);
  data.set("id", at::arange(64));
  TrainerOptions options = tiny_options();
  options.train_dataloader = DataSpec{.dataloader = data::in_memory(data, {.batch_size = 4, .shuffle = true}),
                                      .get_num_tokens_in_batch = [](const Batch&) { return TokenCount(100); }};
  options.iteration_length = "400tok";
  options.max_duration = "40ba";
  std::vector<bool> seen(64);
  std::vector<std::int64_t> firsts;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event != Event::BATCH_START) return;
    const at::Tensor ids = state.batch["id"];
    for (int i = 0; i < 4; ++i) seen[static_cast<std::size_t>(ids[i].item<std::int64_t>())] = true;
    firsts.push_back(ids[0].item<std::int64_t>());
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.state().timestamp.iteration == 10);
  CHECK(std::vector(firsts.begin(), firsts.begin() + 4) != std::vector(firsts.begin() + 4, firsts.begin() + 8));
  CHECK(std::ranges::count(seen, true) > 50);  // of 10 draws of 16 from 64, 60 are to be expected
}

TEST_CASE("A call in the middle of another is refused, and the run can go on") {
  struct Row {
    const char* call;
    void (*make)(Trainer&);
  };
  for (const auto& [call, make] : {
           Row{"step()", [](Trainer& t) { t.step(); }},
           Row{"end()", [](Trainer& t) { t.end(); }},
           Row{"begin()", [](Trainer& t) { t.begin(); }},
           Row{"begin()", [](Trainer& t) { t.fit("1ba"); }},
           Row{"find_lr()", [](Trainer& t) { t.find_lr(); }},
           Row{"a run cannot go on exactly from after_forward", [](Trainer& t) { t.save_checkpoint("now"); }},
           Row{"cannot go on exactly",
               [](Trainer& t) { t.eval({.eval_dataloader = tiny_loader(4, 4)}), t.save_checkpoint("now"); }},
           Row{"close()", [](Trainer& t) { t.close(); }},
       }) {
    CAPTURE(call);
    const Folder folder;
    TrainerOptions options = tiny_options();
    options.save_folder = folder / "ck";
    Trainer* trainer = nullptr;
    int refused = 0;
    options.callbacks = {At([&, call = call, make = make](Event event, const State&) {
      if (event != Event::AFTER_FORWARD) return;
      CHECK_THROWS_WITH_AS(make(*trainer), doctest::Contains(call), ConfigError);
      ++refused;
    })};
    Trainer made(std::move(options));
    trainer = &made;
    made.fit();
    CHECK(refused == 4);
    CHECK(made.state().timestamp.batch == 4);
  }
}

TEST_CASE("An evaluation within an evaluation is refused, one between two batches is not") {
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(4, 4);
  options.eval_interval = "2ba";
  Trainer* trainer = nullptr;
  options.callbacks = {At([&](Event event, const State&) {
    if (event == Event::EVAL_BATCH_END && !trainer->state().dataloader_label.starts_with("own"))
      CHECK_THROWS_WITH_AS(trainer->eval(), doctest::Contains("inside of an evaluation"), ConfigError);
    if (event == Event::BATCH_CHECKPOINT)
      trainer->eval({.eval_dataloader = Evaluator{.label = "own", .dataloader = tiny_loader(4, 4)}});
  })};
  Trainer made(std::move(options));
  trainer = &made;
  made.fit();
  CHECK(made.state().metrics.find("own", "CrossEntropy"));
  CHECK(made.state().timestamp.batch == 4);
}

TEST_CASE("A trainer that was moved from says so at any call") {
  Trainer from(tiny_options());
  Trainer to(std::move(from));
  struct Row {
    const char* call;
    void (*make)(Trainer&);
  };
  for (const auto& [call, make] : {
           Row{"fit", [](Trainer& t) { t.fit(); }},
           Row{"begin", [](Trainer& t) { t.begin(); }},
           Row{"step", [](Trainer& t) { t.step(); }},
           Row{"step(batch)", [](Trainer& t) { t.step(tiny_data(4)); }},
           Row{"end", [](Trainer& t) { t.end(); }},
           Row{"eval", [](Trainer& t) { t.eval(); }},
           Row{"predict", [](Trainer& t) { t.predict(tiny_loader(4, 4)); }},
           Row{"find_lr", [](Trainer& t) { t.find_lr(); }},
           Row{"close", [](Trainer& t) { t.close(); }},
           Row{"state", [](Trainer& t) { t.state(); }},
           Row{"engine", [](Trainer& t) { t.engine(); }},
           Row{"logger", [](Trainer& t) { t.logger(); }},
           Row{"tuning", [](Trainer& t) { t.tuning(); }},
           Row{"interrupted_by", [](Trainer& t) { t.interrupted_by(); }},
           Row{"save_checkpoint", [](Trainer& t) { t.save_checkpoint(); }},
           Row{"saved_checkpoints", [](Trainer& t) { t.saved_checkpoints(); }},
           Row{"resumed_from", [](Trainer& t) { t.resumed_from(); }},
       }) {
    CAPTURE(call);
    CHECK_THROWS_WITH_AS(make(from), doctest::Contains("moved from"), Error);  // NOLINT(bugprone-use-after-move)
  }
  to.fit();
  CHECK(to.state().timestamp.batch == 4);
}

TEST_CASE("After an error the next call says that the fit was ended by it") {
  TrainerOptions options = tiny_options();
  bool fails = true;
  options.callbacks = {At([&](Event event, const State&) {
    if (event == Event::BATCH_END && std::exchange(fails, false)) throw std::runtime_error("boom");
  })};
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.step(), doctest::Contains("step() before begin()"), ConfigError);
  trainer.begin();
  CHECK_THROWS_AS(trainer.step(), RunError);
  CHECK_THROWS_WITH_AS(trainer.step(), doctest::Contains("ended by an error"), ConfigError);
  CHECK_THROWS_WITH_AS(trainer.end(), doctest::Contains("call begin() again"), ConfigError);
  trainer.begin();
  while (trainer.step()) {
  }
  trainer.end();
  CHECK(trainer.state().timestamp.batch == 4);
}

// Takes that long for a batch, without sleeping.
struct Slow final : Loader {
  explicit Slow(double seconds) : seconds(seconds) {}
  void seek(std::int64_t, std::int64_t batch) override { given = batch; }
  std::optional<std::int64_t> num_batches() const override { return 1; }
  std::optional<Batch> next() override {
    if (given++ > 0) return std::nullopt;
    using Clock = std::chrono::steady_clock;
    for (const auto until = Clock::now() + std::chrono::duration<double>(seconds); Clock::now() < until;) {
    }
    return tiny_data(4);
  }
  double seconds;
  std::int64_t given = 0;
};

TEST_CASE("What is evaluated and predicted between two steps is not billed to the batches") {
  constexpr double kLong = 0.2;
  TrainerOptions options = tiny_options();
  Trainer trainer(std::move(options));
  trainer.begin();
  trainer.step();
  const double before = trainer.state().timestamp.total_wct.count();
  const auto started = std::chrono::steady_clock::now();
  trainer.eval({.eval_dataloader = std::make_shared<Slow>(kLong)});
  trainer.predict(std::make_shared<Slow>(kLong));
  trainer.step();
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  trainer.end();
  CHECK(trainer.state().timestamp.total_wct.count() - before <= passed - kLong);
}

TEST_CASE("What tune tries is not billed to the first batch") {
  constexpr double kStep = 0.02;
  const Folder folder;
  const QuietMachine quiet;
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  int steps = 0;
  TrainerOptions options = tiny_options();
  options.tune = true;
  options.tune_cache = folder / "tune.json";
  options.max_duration = "1ba";
  options.train_dataloader =
      DataSpec{.dataloader = tiny_loader(16, 4), .microbatch_transforms = [&](Batch&) {
                 ++steps;
                 using Clock = std::chrono::steady_clock;
                 for (const auto until = Clock::now() + std::chrono::duration<double>(kStep); Clock::now() < until;) {
                 }
               }};
  Trainer trainer(std::move(options));
  const auto started = std::chrono::steady_clock::now();
  trainer.fit();
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  at::set_num_threads(threads);
  REQUIRE(steps > 3);
  CHECK(trainer.state().timestamp.batch_wct.count() <= passed - (steps - 2) * kStep);
}

TEST_CASE("A checkpoint made by hand is neither the one that is due nor one of those that are kept") {
  const Folder folder;
  TrainerOptions options = tiny_options();
  options.max_duration = "2ep";
  options.save_folder = folder / "ck";
  options.save_num_checkpoints_to_keep = 1;
  Trainer* trainer = nullptr;
  std::string path;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BATCH_CHECKPOINT && state.timestamp.batch == 4) path = trainer->save_checkpoint("mine");
  })};
  Trainer made(std::move(options));
  trainer = &made;
  made.fit();
  CHECK(path == folder / "ck/mine");
  CHECK(made.saved_checkpoints() == std::vector<std::string>{folder / "ck/mine", folder / "ck/ep2-ba8"});
  std::vector<std::string> names;
  for (const auto& found : saving::list_checkpoints(folder / "ck")) names.push_back(found.manifest.name);
  CHECK(names == std::vector<std::string>{"mine", "ep2-ba8"});
  CHECK(made.save_checkpoint() == folder / "ck/ep2-ba8");
}

}  // namespace
}  // namespace composer::test::own_loop_test
