// A fit without a loader: its batches are given to step(batch) and belong to one endless epoch.
#include <functional>

#include "composer/callbacks/checkpoint_saver.h"
#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/threshold_stopper.h"
#include "composer/core/error.h"
#include "composer/optim/reduce_on_plateau.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::endless_epoch_test {
namespace {

constexpr const char* kAccuracy = "MulticlassAccuracy";

TrainerOptions given_batches() {
  TrainerOptions options = tiny_options();
  options.model = tiny_model(/*train_metrics=*/true);
  options.train_dataloader = {};
  options.max_duration = std::nullopt;
  return options;
}

struct Row {
  const char* why;
  std::function<void(TrainerOptions&, const Folder&)> change;
  const char* text;  // of the error, or of the warning; empty: neither
};

void evaluated(TrainerOptions& options) { options.eval_dataloader = tiny_loader(4, 4); }

Callbacks saver_every(Interval interval, const Folder& folder) {
  return {callbacks::CheckpointSaver({.folder = folder / "more", .save_interval = std::move(interval)})};
}

TEST_CASE("What is due at the end of epochs is refused where no epoch ends, before anything is trained") {
  const std::vector<Row> rows = {
      {"checkpoints", [](auto& o, auto& f) { o.save_folder = f / "ck", o.save_interval = "2ep"; },
       "save_interval: is 2ep, and no epoch ends in a loop of step(batch)"},
      {"evaluations", [](auto& o, auto&) { evaluated(o), o.eval_interval = "3ep"; }, "eval_interval: is 3ep"},
      {"an evaluator's own interval",
       [](auto& o, auto&) {
         o.eval_dataloader = Evaluator{.label = "val", .dataloader = tiny_loader(4, 4), .eval_interval = "2ep"};
       },
       "eval_interval: is 2ep"},
      {"more checkpoints", [](auto& o, auto& f) { o.callbacks = saver_every("2ep", f); },
       "CheckpointSaver: save_interval: is 2ep"},
      {"iterations of epochs",
       [](auto& o, auto& f) { o.save_folder = f / "ck", o.save_interval = "1iter", o.iteration_length = "2ep"; },
       "save_interval: is 1iter"},
      {"a stopper of evaluations",
       [](auto& o, auto&) {
         evaluated(o);
         o.eval_interval = "2ba";
         o.callbacks = {callbacks::EarlyStopper({.monitor = kAccuracy, .dataloader_label = "eval", .patience = "2ep"})};
       },
       "EarlyStopper: patience: is 2ep"},
      {"a threshold of training",
       [](auto& o, auto&) {
         o.callbacks = {
             callbacks::ThresholdStopper({.monitor = kAccuracy, .dataloader_label = "train", .threshold = 0.9})};
       },
       "set stop_on_batch"},
      {"a plateau of training",
       [](auto& o, auto&) {
         o.schedulers = {optim::reduce_on_plateau({.monitor = kAccuracy, .dataloader_label = "train"})};
       },
       "follow those of an evaluator"},
      {"a plateau's patience",
       [](auto& o, auto&) {
         evaluated(o);
         o.eval_interval = "2ba";
         o.schedulers = {optim::reduce_on_plateau({.monitor = kAccuracy, .patience = "3ep"})};
       },
       "reduce_on_plateau: patience: is 3ep"},
  };
  for (const auto& [why, change, text] : rows) {
    CAPTURE(why);
    const Folder folder;
    auto log = std::make_shared<EventLog>();
    TrainerOptions options = given_batches();
    change(options, folder);
    options.callbacks.add(log);
    Trainer trainer(std::move(options));
    CHECK_THROWS_WITH_AS(trainer.begin(), doctest::Contains(text), ConfigError);
    CHECK(log->count("fit_start") == 0);
  }
}

TEST_CASE("What is due at the end of epochs by default is a warning where no epoch ends, once a fit") {
  const std::vector<Row> rows = {
      {"checkpoints", [](auto& o, auto& f) { o.save_folder = f / "ck"; }, "save_interval: is 1ep, and no epoch ends"},
      {"evaluations", [](auto& o, auto&) { evaluated(o); }, "eval_interval: is 1ep, and no epoch ends"},
      {"more checkpoints", [](auto& o, auto& f) { o.callbacks = saver_every("1ep", f); },
       "CheckpointSaver: save_interval: is 1ep"},
      {"a stopper",
       [](auto& o, auto&) {
         o.callbacks = {callbacks::EarlyStopper({.monitor = kAccuracy, .dataloader_label = "train"})};
       },
       "EarlyStopper: patience: is 1ep"},
      {"a plateau",
       [](auto& o, auto&) {
         evaluated(o);
         o.eval_interval = "2ba";
         o.schedulers = {optim::reduce_on_plateau({.monitor = kAccuracy})};
       },
       "reduce_on_plateau: patience: is 10ep"},
      {"nothing to save or evaluate", [](auto&, auto&) {}, ""},
      {"never", [](auto& o, auto& f) { o.save_folder = f / "ck", o.save_interval = "0ep"; }, ""},
      {"batches", [](auto& o, auto& f) { o.save_folder = f / "ck", o.save_interval = "2ba"; }, ""},
      {"a function",
       [](auto& o, auto& f) {
         o.save_folder = f / "ck";
         o.save_interval = [](Event, const State&) { return false; };
       },
       ""},
      {"a loader", [](auto& o, auto& f) { o.save_folder = f / "ck", o.train_dataloader = tiny_loader(8, 4); }, ""},
  };
  for (const auto& [why, change, text] : rows) {
    CAPTURE(why);
    const Folder folder;
    TrainerOptions options = given_batches();
    change(options, folder);
    Trainer trainer(std::move(options));
    const Warnings warnings;
    trainer.begin();
    REQUIRE(warnings.texts.size() == (std::string(text).empty() ? 0 : 1));
    if (!warnings.texts.empty()) CHECK_MESSAGE(warnings.say(text), warnings.texts.front());
    if (!warnings.texts.empty()) CHECK(warnings.say("give it in ba, sp or tok"));
    trainer.end();
  }
}

TEST_CASE(
    "EarlyStopper with a patience in batches, and ThresholdStopper with stop_on_batch, end a loop of step(batch)") {
  const auto trained = [](Callbacks callbacks) {
    TrainerOptions options = given_batches();
    options.optimizer = optim::sgd({.lr = 1e-12});
    options.callbacks = std::move(callbacks);
    Trainer trainer(std::move(options));
    trainer.begin();
    int batches = 0;
    while (batches < 20 && trainer.step(tiny_data(4))) ++batches;
    trainer.end();
    return batches;
  };
  CHECK(trained({callbacks::EarlyStopper({.monitor = kAccuracy, .dataloader_label = "train", .patience = "3ba"})}) ==
        5);
  CHECK(trained({callbacks::ThresholdStopper(
            {.monitor = kAccuracy, .dataloader_label = "train", .threshold = -1, .stop_on_batch = true})}) == 1);
}

TEST_CASE("EarlyStopper that has judged nothing says whether an epoch or an evaluation was missing") {
  for (const auto& [label, text] : {std::pair("train", "no epoch has ended; with a patience in ba it checks \"train\""),
                                    std::pair("eval", "nothing was evaluated as \"eval\"")}) {
    TrainerOptions options = tiny_options();
    options.model = tiny_model(/*train_metrics=*/true);
    options.max_duration = "2ba";
    options.eval_dataloader = tiny_loader(4, 4);
    options.eval_interval = "0ep";
    options.callbacks = {callbacks::EarlyStopper({.monitor = kAccuracy, .dataloader_label = label})};
    Trainer trainer(std::move(options));
    const Warnings warnings;
    trainer.fit();
    trainer.close();
    CHECK(warnings.say(text));
    CHECK_FALSE(warnings.say("there are metrics of"));
  }
}

TEST_CASE(
    "EarlyStopper says nothing of a fit that is only paused, nor where the last evaluation of a fit is the first") {
  for (const bool pauses : {true, false}) {
    TrainerOptions options = tiny_options();
    options.max_duration = Time::parse(pauses ? "2ep" : "2ba");
    options.eval_dataloader = tiny_loader(4, 4);
    options.callbacks = {callbacks::EarlyStopper({.monitor = kAccuracy, .dataloader_label = "eval"}),
                         At([&](Event event, const State& state) {
                           if (pauses && event == Event::BATCH_END) state.stop.ask("a pause");
                         })};
    const Warnings warnings;
    Trainer trainer(std::move(options));
    trainer.fit();
    trainer.close();
    CHECK_FALSE(warnings.say("had no effect"));
  }
}

TEST_CASE("An evaluator may not have the label under which given batches report their metrics") {
  TrainerOptions options = given_batches();
  options.eval_dataloader = Evaluator{.label = "other", .dataloader = tiny_loader(4, 4)};
  options.eval_interval = "2ba";
  options.train_dataloader_label = "mine";
  Trainer trainer(std::move(options));
  trainer.begin();
  CHECK(trainer.step(tiny_data(4)));
  CHECK(trainer.state().dataloader_label == "mine");
  CHECK(trainer.state().metrics.find("mine", kAccuracy) != nullptr);
  trainer.end();
}

}  // namespace
}  // namespace composer::test::endless_epoch_test
