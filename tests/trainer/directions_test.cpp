// The direction that a metric declares decides, also for metrics that evaluators alone have.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/callbacks/early_stopper.h"
#include "composer/callbacks/threshold_stopper.h"
#include "composer/core/direction.h"
#include "composer/core/metric.h"
#include "composer/core/state.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/reduce_on_plateau.h"
#include "tests/support/doctest.h"
#include "tests/support/figure.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::directions_test {
namespace {

// A figure that becomes better from one to the next of five epochs.
TrainerOptions improving(Better declared) {
  const std::map<std::int64_t, double> rising = {{4, .1}, {8, .2}, {12, .3}, {16, .4}, {20, .5}};
  const std::map<std::int64_t, double> falling = {{4, .5}, {8, .4}, {12, .3}, {16, .2}, {20, .15}};
  auto figures = std::make_shared<Figures>(Figures{.by_batch = declared == Better::HIGHER ? rising : falling});
  TrainerOptions options = tiny_options();
  options.max_duration = "5ep";
  options.eval_dataloader = {
      {.label = "eval", .dataloader = tiny_loader(4, 4), .metrics = Metrics(Figure(figures, declared))}};
  options.callbacks = {At([figures](Event event, const State& state) {
    if (event == Event::EVAL_START) figures->batch = state.timestamp.batch;
  })};
  return options;
}

using Follow = std::function<void(TrainerOptions&, Better declared, std::optional<Better> given)>;

// Who follows the figure, and would end or slow the run down if it became worse.
const std::vector<std::pair<std::string, Follow>>& followers() {
  static const std::vector<std::pair<std::string, Follow>> all = {
      {"EarlyStopper",
       [](TrainerOptions& o, Better, std::optional<Better> better) {
         o.callbacks.add(callbacks::EarlyStopper(
             {.monitor = "Figure", .dataloader_label = "eval", .better = better, .patience = "1ep"}));
       }},
      {"ThresholdStopper",
       [](TrainerOptions& o, Better declared, std::optional<Better> better) {
         o.callbacks.add(callbacks::ThresholdStopper({.monitor = "Figure",
                                                      .dataloader_label = "eval",
                                                      .threshold = declared == Better::HIGHER ? 0.9 : 0.1,
                                                      .better = better}));
       }},
      {"reduce_on_plateau", [](TrainerOptions& o, Better, std::optional<Better> better) {
         o.schedulers = {optim::reduce_on_plateau({.monitor = "Figure", .better = better, .patience = "1ep"})};
       }}};
  return all;
}

TEST_CASE("An evaluator's own metric decides what is better for stoppers and plateaus") {
  for (const Better declared : {Better::HIGHER, Better::LOWER})
    for (const auto& [name, follow] : followers()) {
      CAPTURE(name);
      CAPTURE(declared == Better::HIGHER);
      TrainerOptions options = improving(declared);
      follow(options, declared, std::nullopt);
      const Warnings warnings;
      Trainer trainer(std::move(options));
      trainer.fit();
      CHECK(trainer.state().timestamp.epoch == 5);
      CHECK(optim::learning_rates(*trainer.state().optimizer).front() == 0.1);
      CHECK(warnings.texts.empty());
    }
}

TEST_CASE("An option that contradicts the metric is obeyed, with a warning when the fit begins") {
  for (const auto& [name, follow] : followers()) {
    CAPTURE(name);
    TrainerOptions options = improving(Better::HIGHER);
    follow(options, Better::HIGHER, Better::LOWER);
    std::size_t told = 0;
    const Warnings warnings;
    options.callbacks.add(At([&](Event event, const State&) {
      if (event == Event::FIT_START) told = warnings.texts.size();
    }));
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(told == 1);
    CHECK(warnings.say(name + ": better is LOWER, and the metric \"eval/Figure\" says HIGHER"));
    const bool reduced = optim::learning_rates(*trainer.state().optimizer).front() < 0.1;
    CHECK((reduced || trainer.state().timestamp.epoch < 5));
  }
}

TEST_CASE("Who sets a metric by hand may say which values are better; else it is guessed, with a warning") {
  State state;
  const Warnings warnings;
  state.metrics.set("own", "distance", at::scalar_tensor(1.0));
  CHECK(direction("I", std::nullopt, state, "own", "distance") == Better::HIGHER);
  CHECK(direction("I", std::nullopt, state, "own", "Last_Loss") == Better::LOWER);
  REQUIRE(warnings.texts.size() == 2);
  CHECK(warnings.say("I: nobody declares whether more or less of the metric \"own/distance\" is better, so HIGHER"));
  CHECK(direction("I", Better::LOWER, state, "own", "distance") == Better::LOWER);
  state.metrics.set("own", "distance", at::scalar_tensor(1.0), Better::LOWER);
  CHECK(direction("I", std::nullopt, state, "own", "distance") == Better::LOWER);
  state.metrics.set("own", "distance", at::scalar_tensor(2.0));
  CHECK(direction("I", std::nullopt, state, "own", "distance") == Better::LOWER);
  CHECK(warnings.texts.size() == 2);
}

}  // namespace
}  // namespace composer::test::directions_test
