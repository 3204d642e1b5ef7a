// What an event opens is closed on every way out, and what a trainer's callbacks may ask for is there until they close.
#include <csignal>
#include <map>
#include <optional>

#include "composer/callbacks/early_stopper.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"
#include "tests/trainer/algorithm_at.h"

namespace composer::test::scopes_test {
namespace {

const std::vector<std::pair<Event, Event>> kScopes{{Event::EVAL_BEFORE_ALL, Event::EVAL_AFTER_ALL},
                                                   {Event::EVAL_START, Event::EVAL_END},
                                                   {Event::EVAL_STANDALONE_START, Event::EVAL_STANDALONE_END},
                                                   {Event::PREDICT_START, Event::PREDICT_END}};

// Multiplies the weights while something is evaluated or predicted, and counts events.
struct Swap {
  AlgorithmAt algorithm() {
    return {{Event::EVAL_BEFORE_ALL, Event::EVAL_AFTER_ALL, Event::EVAL_START, Event::EVAL_END,
             Event::EVAL_STANDALONE_START, Event::EVAL_STANDALONE_END, Event::PREDICT_START, Event::PREDICT_END},
            [this](Event event, State& state) {
              ++counts[event];
              for (const auto& [opens, closes] : kScopes)
                if (event == opens || event == closes) {
                  const at::NoGradGuard no_grad;
                  for (at::Tensor& weight : state.model->parameters()) weight.mul_(event == opens ? 2 : 0.5);
                }
            }};
  }
  void check_balance() {
    for (const auto& [opens, closes] : kScopes) {
      CAPTURE(to_string(opens));
      CHECK(counts[opens] == counts[closes]);
    }
  }
  std::map<Event, int> counts;
};

TEST_CASE("Weights that are swapped for an evaluation are back after a signal, and in the checkpoint") {
  const Folder folder;
  Swap swap;
  auto log = std::make_shared<EventLog>();
  TrainerOptions options = tiny_options();
  options.handle_signals = true;
  options.max_duration = "8ba";
  options.eval_dataloader = tiny_loader(16, 4);
  options.eval_interval = "2ba";
  options.save_folder = folder / "ck";
  options.algorithms = {swap.algorithm()};
  at::Tensor trained;
  Trainer* trainer = nullptr;
  options.callbacks = {log, At([&](Event event, const State& state) {
                         if (event == Event::BATCH_END && state.timestamp.batch == 4) trained = weights_of(*trainer);
                         if (event == Event::EVAL_BATCH_END && state.timestamp.batch == 4) std::raise(SIGTERM);
                       })};
  Trainer made(std::move(options));
  trainer = &made;
  made.fit();
  swap.check_balance();
  CHECK(log->count("eval_start") == log->count("eval_end"));
  CHECK(log->count("eval_before_all") == log->count("eval_after_all"));
  CHECK(made.state().timestamp.batch == 4);
  TrainerOptions other = tiny_options();
  other.load_path = made.saved_checkpoints().back();
  Trainer loaded(std::move(other));
  CHECK(weights_of(loaded).equal(trained));
}

TEST_CASE("Weights that are swapped are back after an error at any event between, and the first error leaves") {
  struct Row {
    Event fails_at;
    void (*run)(Trainer&);
  };
  const auto fit = [](Trainer& t) { t.fit(); };
  const auto eval = [](Trainer& t) { t.eval(); };
  const auto predict = [](Trainer& t) { t.predict(tiny_loader(8, 4)); };
  for (const auto& [fails_at, run] : {
           Row{Event::EVAL_BEFORE_ALL, fit},
           Row{Event::EVAL_START, fit},
           Row{Event::EVAL_BATCH_START, fit},
           Row{Event::EVAL_BEFORE_FORWARD, fit},
           Row{Event::EVAL_AFTER_FORWARD, fit},
           Row{Event::EVAL_BATCH_END, fit},
           Row{Event::EVAL_END, fit},
           Row{Event::EVAL_AFTER_ALL, fit},
           Row{Event::EVAL_STANDALONE_START, eval},
           Row{Event::EVAL_BATCH_END, eval},
           Row{Event::EVAL_STANDALONE_END, eval},
           Row{Event::PREDICT_START, predict},
           Row{Event::PREDICT_BATCH_START, predict},
           Row{Event::PREDICT_AFTER_FORWARD, predict},
           Row{Event::PREDICT_END, predict},
       }) {
    CAPTURE(to_string(fails_at));
    Swap swap;
    at::Tensor before;
    Trainer* trainer = nullptr;
    TrainerOptions options = tiny_options();
    options.eval_dataloader = tiny_loader(8, 4);
    options.algorithms = {swap.algorithm()};
    options.callbacks = {At([&, fails_at = fails_at](Event event, const State&) {
      if (event == Event::BATCH_END) before = weights_of(*trainer);
      if (event == fails_at) throw std::runtime_error("the first error");
    })};
    Trainer made(std::move(options));
    trainer = &made;
    before = weights_of(made);
    try {
      run(made);
      FAIL("it threw nothing");
    } catch (const std::exception& error) {
      CHECK(describe(error).find("the first error") != std::string::npos);
    }
    swap.check_balance();
    CHECK(weights_of(made).equal(before));
    CHECK(made.state().dataloader_label == "train");
  }
}

TEST_CASE("An algorithm that throws at a closing event keeps no other from closing, also after a signal") {
  for (const bool signal : {false, true})
    for (const auto& [opens, closes] : kScopes) {
      if (signal && (closes == Event::EVAL_STANDALONE_END || closes == Event::PREDICT_END)) continue;
      CAPTURE(signal);
      CAPTURE(to_string(closes));
      const Warnings warnings;
      Swap swap;
      TrainerOptions options = tiny_options();
      options.handle_signals = true;
      options.eval_dataloader = tiny_loader(8, 4);
      options.eval_interval = "2ba";
      const auto fails = AlgorithmAt({closes}, [](Event, State&) { throw std::runtime_error("the first"); });
      options.algorithms = {fails, swap.algorithm(), fails};
      options.callbacks = {At([&](Event event, const State&) {
        if (signal && event == Event::EVAL_BATCH_END) std::raise(SIGTERM);
      })};
      Trainer trainer(std::move(options));
      trainer.begin();
      const auto run = [&] {
        if (closes == Event::PREDICT_END) return void(trainer.predict(tiny_loader(8, 4)));
        if (closes == Event::EVAL_STANDALONE_END) return trainer.eval();
        while (trainer.step()) {
        }
      };
      at::Tensor before = weights_of(trainer);
      if (signal)
        CHECK_NOTHROW(run());
      else
        CHECK_THROWS_WITH_AS(run(), doctest::Contains("the first"), RunError);
      swap.check_balance();
      CHECK(warnings.say("the first"));
      CHECK(weights_of(trainer).abs().max().item<double>() < 1.5);
    }
}

TEST_CASE("A pass that is registered within an evaluation does not keep algorithms from closing after an error") {
  Swap swap;
  Trainer* trainer = nullptr;
  TrainerOptions options = tiny_options();
  options.algorithms = {swap.algorithm()};
  options.callbacks = {At([&](Event event, const State&) {
    if (event == Event::EVAL_BATCH_START) trainer->engine().register_pass([](Event, auto&) {});
    if (event == Event::EVAL_BATCH_END) throw std::runtime_error("x");
  })};
  Trainer made(std::move(options));
  trainer = &made;
  CHECK_THROWS_AS(made.eval({.eval_dataloader = tiny_loader(8, 4)}), RunError);
  swap.check_balance();
}

TEST_CASE("An algorithm that has not seen the opening event does not see the closing one") {
  int first = 0, second = 0;
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(4, 4);
  options.algorithms = {AlgorithmAt({Event::EVAL_START, Event::EVAL_END},
                                    [&](Event event, State&) {
                                      if (event == Event::EVAL_START) throw std::runtime_error("first");
                                      ++first;
                                    }),
                        AlgorithmAt({Event::EVAL_START, Event::EVAL_END}, [&](Event, State&) { ++second; })};
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.eval(), RunError);
  CHECK(first == 1);
  CHECK(second == 0);
}

TEST_CASE("What an algorithm throws while it closes after an error is a warning") {
  const Warnings warnings;
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(4, 4);
  options.algorithms = {AlgorithmAt({Event::EVAL_END}, [](Event, State&) { throw std::runtime_error("the second"); })};
  options.callbacks = {At([](Event event, const State&) {
    if (event == Event::EVAL_BATCH_END) throw std::runtime_error("the first");
  })};
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.eval(), doctest::Contains("failed at eval_batch_end"), RunError);
  CHECK(warnings.say("the second"));
}

TEST_CASE("A signal in the first evaluation ends the run in order, though nobody finds a metric to judge") {
  const Folder folder;
  const Warnings warnings;
  TrainerOptions options = tiny_options();
  options.handle_signals = true;
  options.max_duration = "8ba";
  options.eval_dataloader = tiny_loader(16, 4);
  options.eval_interval = "2ba";
  options.save_folder = folder / "ck";
  options.callbacks = {callbacks::EarlyStopper({.monitor = "CrossEntropy", .dataloader_label = "eval"}),
                       At([](Event event, const State& state) {
                         if (event == Event::EVAL_BATCH_START) std::raise(SIGINT);
                         if (event == Event::EVAL_END) state.metrics.at("eval", "CrossEntropy");
                       })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.interrupted_by() == SIGINT);
  CHECK(trainer.state().timestamp.batch == 2);
  CHECK_FALSE(trainer.state().metrics.find("eval", "CrossEntropy"));
  CHECK(trainer.saved_checkpoints().size() == 1);
  CHECK(warnings.say("there is no metric \"eval/CrossEntropy\""));
}

TEST_CASE("After a signal has ended a fit, eval() evaluates everything") {
  auto log = std::make_shared<EventLog>();
  TrainerOptions options = tiny_options();
  options.handle_signals = true;
  options.eval_dataloader = tiny_loader(16, 4);
  options.eval_interval = "0ep";
  options.callbacks = {log, At([](Event event, const State& state) {
                         if (event == Event::BATCH_END && state.timestamp.batch == 2) std::raise(SIGINT);
                       })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.interrupted_by() == SIGINT);
  trainer.eval();
  CHECK(log->count("eval_batch_end") == 4);
  CHECK(log->count("eval_end") == 1);
  CHECK(trainer.state().metrics.find("eval", "CrossEntropy"));
  CHECK(trainer.interrupted_by() == SIGINT);
}

TEST_CASE("Evaluation and prediction leave the outputs and the batch of training as they were") {
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(8, 2);
  options.eval_interval = "1ba";
  at::Tensor outputs;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BATCH_END) outputs = state.outputs.front();
    if (event != Event::BATCH_CHECKPOINT) return;
    CHECK(state.outputs.front().is_same(outputs));
    CHECK_FALSE(state.outputs.front().is_inference());
    CHECK(state.batch["input"].size(0) == 4);
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  trainer.predict(tiny_loader(4, 2));
  CHECK(trainer.state().outputs.front().is_same(outputs));
}

TEST_CASE("After an error in a microbatch state.batch is the whole batch, and gradients are gone") {
  TrainerOptions options = tiny_options();
  options.device_train_microbatch_size = 2;
  int backwards = 0;
  options.callbacks = {At([&](Event event, const State&) {
    if (event == Event::AFTER_BACKWARD && ++backwards == 4) throw std::runtime_error("boom");
  })};
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
  CHECK(trainer.state().batch["input"].size(0) == 4);
  for (const at::Tensor& parameter : trainer.state().model->parameters()) CHECK_FALSE(parameter.grad().defined());
}

// Takes a snapshot when it is closed.
struct Closing final : Callback {
  void init(const State&, Logger&) override { has_seen_init = true; }
  void close(const State& state, Logger&) override {
    CHECK(has_seen_init);
    ++closed;
    entries = state.run->snapshot(false).size();
  }
  bool has_seen_init = false;
  int closed = 0;
  std::size_t entries = 0;
};

TEST_CASE("A callback may take a snapshot of the run while it closes, whoever closes the trainer") {
  for (const bool by_hand : {true, false}) {
    CAPTURE(by_hand);
    const Folder folder;
    const auto closing = std::make_shared<Closing>();
    {
      TrainerOptions options = tiny_options();
      options.model = tiny_model(true);
      options.save_folder = folder / "ck";
      options.eval_dataloader = tiny_loader(4, 4);
      options.schedulers = {[](const optim::ScheduleContext&) { return 1.0; }};
      options.callbacks = {closing};
      Trainer trainer(std::move(options));
      trainer.fit();
      if (by_hand) trainer.close();
    }
    CHECK(closing->closed == 1);
    CHECK(closing->entries > 10);
  }
}

TEST_CASE("If a trainer cannot be made, those callbacks are closed that have seen INIT, with the run still there") {
  struct Row {
    const char* fails;
    int closed;
    void (*spoil)(TrainerOptions&);
  };
  const auto fail_at = [](Event at) {
    return At([=](Event event, const State&) {
      if (event == at) throw std::runtime_error("boom");
    });
  };
  static const auto at_init = fail_at(Event::INIT), at_load = fail_at(Event::AFTER_LOAD);
  for (const auto& [fails, closed, spoil] : {
           Row{"the optimizer, which is made after INIT", 1,
               [](TrainerOptions& o) {
                 o.optimizer = optim::AnyOptimizer::Factory(
                     [](const optim::NamedParameters&) -> std::shared_ptr<torch::optim::Optimizer> {
                       throw ConfigError("bad lr");
                     });
               }},
           Row{"INIT of a callback before it", 0,
               [](TrainerOptions& o) {
                 Callbacks callbacks(at_init);
                 for (const auto& plugin : o.callbacks.list()) callbacks.add(plugin.object);
                 o.callbacks = callbacks;
               }},
           Row{"INIT of a callback after it", 1, [](TrainerOptions& o) { o.callbacks.add(at_init); }},
           Row{"AFTER_LOAD", 1, [](TrainerOptions& o) { o.callbacks.add(at_load); }},
       }) {
    CAPTURE(fails);
    const Folder folder;
    const auto closing = std::make_shared<Closing>();
    TrainerOptions options = tiny_options();
    options.save_folder = folder / "ck";
    options.eval_dataloader = tiny_loader(4, 4);
    options.callbacks = {closing};
    spoil(options);
    CHECK_THROWS(Trainer(std::move(options)));
    CHECK(closing->closed == closed);
    TrainerOptions again = tiny_options();
    again.callbacks = {closing};
    Trainer trainer(std::move(again));  // it is in no open trainer
  }
}

TEST_CASE("A copy of the state outlives its trainer, and its run says that it is closed") {
  std::optional<State> copy;
  {
    Trainer trainer(tiny_options());
    trainer.fit();
    copy = trainer.state();
    CHECK(copy->run->snapshot(true).find("model"));
  }
  REQUIRE(copy->run);
  CHECK_THROWS_WITH_AS(copy->run->snapshot(false), doctest::Contains("is closed"), Error);
  CHECK_THROWS_WITH_AS(copy->run->load({.path = "nowhere"}), doctest::Contains("is closed"), Error);
  CHECK_THROWS_WITH_AS(copy->run->moment(Event::BATCH_END), doctest::Contains("is closed"), Error);
  CHECK_FALSE(copy->run->interrupted());
  CHECK_FALSE(copy->run->time_left());
}

}  // namespace
}  // namespace composer::test::scopes_test
