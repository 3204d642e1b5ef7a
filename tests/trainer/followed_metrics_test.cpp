// The metrics that stoppers, schedules and save_best follow are looked for when a fit begins.
#include <functional>

#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/threshold_stopper.h"
#include "composer/core/error.h"
#include "composer/optim/reduce_on_plateau.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::followed_metrics_test {
namespace {

using callbacks::EarlyStopper;
using callbacks::ThresholdStopper;

// Follows the metric in one of four ways.
using Follow = std::function<void(TrainerOptions&, const std::string& label, const std::string& name)>;

struct Follower {
  const char* who;
  Follow follow;
};

std::vector<Follower> followers() {
  return {
      {"EarlyStopper", [](TrainerOptions& o, auto& label,
                          auto& name) { o.callbacks = {EarlyStopper({.monitor = name, .dataloader_label = label})}; }},
      {"ThresholdStopper",
       [](TrainerOptions& o, auto& label, auto& name) {
         o.callbacks = {ThresholdStopper({.monitor = name, .dataloader_label = label, .threshold = 2})};
       }},
      {"reduce_on_plateau",
       [](TrainerOptions& o, auto& label, auto& name) {
         o.schedulers = {optim::reduce_on_plateau({.monitor = name, .dataloader_label = label})};
       }},
      {"save_best",
       [](TrainerOptions& o, auto& label, auto& name) {
         o.save_num_checkpoints_to_keep = 1;
         o.save_best = saving::Best{.metric = label + "/" + name};
       }},
  };
}

TrainerOptions evaluated(const Folder& folder) {
  TrainerOptions options = tiny_options();
  options.model = tiny_model(/*train_metrics=*/true);
  options.eval_dataloader = tiny_loader(4, 4);
  options.save_folder = folder / "ck";
  return options;
}

TEST_CASE("A metric that the loader of its label does not have is refused before anything is trained") {
  for (const auto& [who, follow] : followers())
    for (const std::string label : {"eval", "train"}) {
      CAPTURE(who);
      CAPTURE(label);
      const Folder folder;
      TrainerOptions options = evaluated(folder);
      follow(options, label, "MSE");
      auto log = std::make_shared<EventLog>();
      options.callbacks.add(log);
      Trainer trainer(std::move(options));
      CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("MulticlassAccuracy"), ConfigError);
      CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains((std::string(who) + ": there is no metric").c_str()),
                           ConfigError);
      CHECK(log->count("fit_start") == 0);
      CHECK(trainer.state().timestamp.batch == 0);
    }
}

TEST_CASE("A metric that the loader of its label has is followed, whoever follows it") {
  for (const auto& [who, follow] : followers())
    for (const std::string label : {"eval", "train"}) {
      CAPTURE(who);
      CAPTURE(label);
      const Folder folder;
      TrainerOptions options = evaluated(folder);
      follow(options, label, "MulticlassAccuracy");
      Trainer trainer(std::move(options));
      const Warnings warnings;
      CHECK_NOTHROW(trainer.fit());
      CHECK(warnings.texts.empty());
    }
}

TEST_CASE("A label that no loader of the fit has is refused if nothing can report it, else it is a warning at once") {
  for (const auto& [who, follow] : followers()) {
    CAPTURE(who);
    const Folder folder;
    TrainerOptions options = evaluated(folder);
    follow(options, "val", "MulticlassAccuracy");
    Trainer trainer(std::move(options));
    const Warnings warnings;
    if (std::string(who).ends_with("Stopper")) {  // eval() may be given an evaluator of this label
      trainer.begin();
      CHECK(warnings.say("nothing in this fit is evaluated as \"val\""));
      CHECK(warnings.say("there are: train, eval"));
      trainer.end();
    } else {
      CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("train, eval"), ConfigError);
    }
  }
}

TEST_CASE("save_best follows what an algorithm sets under a label of its own, or what is there when the fit begins") {
  const Folder folder;
  TrainerOptions options = evaluated(folder);
  options.save_num_checkpoints_to_keep = 1;
  options.save_interval = "1ba";
  options.save_best = saving::Best{.metric = "own/score", .better = Better::HIGHER};
  options.save_latest_filename = "";
  options.algorithms = {AtAlgorithm({Event::BATCH_END}, [](State& state) {
    state.metrics.set("own", "score", at::scalar_tensor(state.timestamp.batch == 2 ? 1.0 : 0.0));
  })};
  Trainer trainer(std::move(options));
  {
    const Warnings warnings;
    trainer.fit();
    CHECK(warnings.say("no loader of this fit has the label \"own\""));
  }
  CHECK(trainer.state().metrics.find("own", "score") != nullptr);
  const Warnings warnings;
  trainer.fit("1ba");
  CHECK(warnings.texts.empty());

  const Folder other;
  TrainerOptions without = evaluated(other);
  without.save_num_checkpoints_to_keep = 1;
  without.save_best = saving::Best{.metric = "own/score"};
  Trainer by_hand(std::move(without));
  by_hand.state().metrics.set("own", "score", at::scalar_tensor(1.0));
  CHECK_NOTHROW(by_hand.fit());
}

TEST_CASE("save_best without a label is refused") {
  const Folder folder;
  TrainerOptions options = evaluated(folder);
  options.save_num_checkpoints_to_keep = 1;
  options.save_best = saving::Best{.metric = "MulticlassAccuracy"};
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("must be LABEL/NAME"), ConfigError);
}

}  // namespace
}  // namespace composer::test::followed_metrics_test
