// What may be called from within a call, and what is exact enough to be saved.
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/run.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/trainer/algorithm_at.h"

namespace composer::test::nested_calls_test {
namespace {

TEST_CASE("Within find_lr() no call is taken that would train, evaluate, save or close, and its steps are undone") {
  struct Row {
    const char* call;
    void (*make)(Trainer&);
  };
  for (const auto& [call, make] : {
           Row{"fit", [](Trainer& t) { t.fit("2ba"); }},
           Row{"begin", [](Trainer& t) { t.begin(); }},
           Row{"eval", [](Trainer& t) { t.eval({.eval_dataloader = tiny_loader(4, 4)}); }},
           Row{"predict", [](Trainer& t) { t.predict(tiny_loader(4, 4)); }},
           Row{"find_lr", [](Trainer& t) { t.find_lr({.num_batches = 4}); }},
           Row{"save_checkpoint", [](Trainer& t) { t.save_checkpoint("now"); }},
           Row{"close", [](Trainer& t) { t.close(); }},
       }) {
    CAPTURE(call);
    const Folder folder;
    Trainer* trainer = nullptr;
    std::string said;
    TrainerOptions options = tiny_options();
    options.max_duration = "4ep";
    options.save_folder = folder / "ck";
    options.algorithms = {AlgorithmAt({Event::BATCH_END}, [&, make = make](Event, State&) {
      if (said.empty()) said = error_of([&] { make(*trainer); });
    })};
    Trainer made(std::move(options));
    trainer = &made;
    const at::Tensor before = weights_of(made);
    made.find_lr({.num_batches = 8});
    CHECK(said.find("find_lr") != std::string::npos);
    CHECK(made.state().timestamp.batch == 0);
    CHECK(weights_of(made).equal(before));
    CHECK_NOTHROW(made.fit());
  }
}

TEST_CASE(
    "save_checkpoint() is taken at the events of checkpoints alone: a run that goes on from there misses nothing") {
  std::vector<std::string> taken;
  const Folder folder;
  Trainer* trainer = nullptr;
  TrainerOptions options = tiny_options();
  options.max_duration = "2ep";
  options.iteration_length = Time("1ep");
  options.eval_dataloader = tiny_loader(8, 4);
  options.save_folder = folder / "ck";
  options.callbacks = {At([&](Event event, const State&) {
    if (!trainer || event == Event::EVAL_STANDALONE_START || event == Event::EVAL_STANDALONE_END) return;
    const std::string name(to_string(event));
    if (error_of([&] { trainer->save_checkpoint(name + "-ba{batch}"); }) == "no error" &&
        (taken.empty() || taken.back() != name))
      taken.push_back(name);
  })};
  Trainer made(std::move(options));
  trainer = &made;
  made.fit();
  trainer = nullptr;
  const std::vector<std::string> expected{
      "fit_start",        "batch_checkpoint", "epoch_checkpoint",     "iteration_checkpoint",
      "batch_checkpoint", "epoch_checkpoint", "iteration_checkpoint", "fit_end"};
  CHECK(taken == expected);
}

TEST_CASE("A checkpoint cannot be taken while an algorithm may have exchanged the weights") {
  const Folder folder;
  Trainer* trainer = nullptr;
  std::string at_start, at_end, snapshot;
  TrainerOptions options = tiny_options();
  options.save_folder = folder / "ck";
  options.algorithms = {AlgorithmAt({Event::EVAL_STANDALONE_START, Event::EVAL_STANDALONE_END}, [](Event, State&) {})};
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::EVAL_BATCH_END) at_start = error_of([&] { trainer->save_checkpoint("a"); });
    if (event == Event::EVAL_BATCH_END) snapshot = error_of([&] { state.run->snapshot(false); });
    if (event == Event::EVAL_STANDALONE_END) at_end = error_of([&] { trainer->save_checkpoint("b"); });
  })};
  Trainer made(std::move(options));
  trainer = &made;
  made.eval({.eval_dataloader = tiny_loader(4, 4)});
  CHECK(at_start.find("AlgorithmAt may have exchanged the weights") != std::string::npos);
  CHECK(snapshot.find("AlgorithmAt may have exchanged the weights") != std::string::npos);
  CHECK(at_end == "no error");
  CHECK(std::filesystem::exists(folder / "ck/b"));
}

TEST_CASE("After a fit that was ended by an error in the middle of a batch, an evaluation may save") {
  const Folder folder;
  Trainer* trainer = nullptr;
  std::string said;
  TrainerOptions options = tiny_options();
  options.save_folder = folder / "ck";
  options.callbacks = {At([&](Event event, const State&) {
    if (event == Event::AFTER_LOSS) throw std::runtime_error("lost");
    if (event == Event::EVAL_END) said = error_of([&] { trainer->save_checkpoint("mine"); });
  })};
  Trainer made(std::move(options));
  trainer = &made;
  CHECK_THROWS_AS(made.fit(), RunError);
  made.eval({.eval_dataloader = tiny_loader(4, 4)});
  CHECK(said == "no error");
}

TEST_CASE("An error in an evaluation that a callback makes in the middle of a batch leaves the whole batch behind") {
  Trainer* trainer = nullptr;
  TrainerOptions options = tiny_options();
  options.device_train_microbatch_size = 2;
  options.callbacks = {At([&](Event event, const State&) {
    if (event == Event::AFTER_FORWARD) trainer->eval({.eval_dataloader = tiny_loader(4, 4)});
    if (event == Event::EVAL_BATCH_END) throw std::runtime_error("lost");
  })};
  Trainer made(std::move(options));
  trainer = &made;
  CHECK_THROWS_AS(made.fit(), RunError);
  CHECK(made.state().batch.at("input").size(0) == 4);
}

TEST_CASE("A run that is loaded in the middle of a fit goes on with its random numbers, and saves those that follow") {
  const Folder folder;
  const auto options = [&](const char* run) {
    TrainerOptions given = tiny_options();
    given.run_name = run;
    given.max_duration = "3ep";
    given.save_folder = folder / run;
    given.autoresume = false;
    return given;
  };
  TrainerOptions first = options("first");
  std::vector<double> drawn;
  first.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::EPOCH_START && state.timestamp.epoch > 0) drawn.push_back(at::rand({}).item<double>());
  })};
  Trainer(std::move(first)).fit();
  TrainerOptions second = options("second");
  std::vector<double> again;
  std::vector<at::Tensor> saved;
  bool loaded = false;
  second.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::EPOCH_CHECKPOINT && !std::exchange(loaded, true))
      const_cast<State&>(state).run->load({.path = folder / "first/ep1-ba4"});
    if (event == Event::EPOCH_START && loaded) again.push_back(at::rand({}).item<double>());
    if (event == Event::BATCH_CHECKPOINT && loaded)
      saved.push_back(
          std::get<at::Tensor>(std::get<StateDict>(*state.run->snapshot(false).find("rng")).entries().front().second));
  })};
  Trainer trainer(std::move(second));
  trainer.fit();
  REQUIRE(drawn.size() == 2);
  CHECK(again == drawn);
  CHECK_FALSE(saved.front().equal(saved.back()));
}

}  // namespace
}  // namespace composer::test::nested_calls_test
