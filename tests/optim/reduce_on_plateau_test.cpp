#include "composer/optim/reduce_on_plateau.h"

#include <cmath>
#include <random>
#include <vector>

#include <ATen/ATen.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/sgd.h>

#include "composer/core/error.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::optim::reduce_on_plateau_test {
namespace {

using namespace composer::test;

// What PyTorch documents of ReduceLROnPlateau, in calls instead of time.
class ByCalls {
 public:
  ByCalls(const ReduceOnPlateauOptions& o, std::int64_t patience, std::int64_t cooldown)
      : o_(o), patience_(patience), cooldown_(cooldown), best_(o.better != Better::HIGHER ? INFINITY : -INFINITY) {}

  double step(double value) {
    if (better(value)) {
      best_ = value;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooling_ > 0) --cooling_, bad_ = 0;
    if (bad_ > patience_) {
      const double lower = std::max(rate_ * o_.factor, o_.min_alpha);
      if (rate_ - lower > o_.eps) rate_ = lower;
      cooling_ = cooldown_;
      bad_ = 0;
    }
    return rate_;
  }

 private:
  bool better(double value) const {
    const bool relative = o_.threshold_mode == ThresholdMode::REL;
    if (o_.better != Better::HIGHER) return value < (relative ? best_ * (1 - o_.threshold) : best_ - o_.threshold);
    return value > (relative ? best_ * (o_.threshold + 1) : best_ + o_.threshold);
  }
  ReduceOnPlateauOptions o_;
  std::int64_t patience_, cooldown_, bad_ = 0, cooling_ = 0;
  double best_, rate_ = 1;
};

TEST_CASE("The direction that a plateau has asked for is saved with its best value") {
  State state;
  state.metrics.set("eval", "Figure", at::scalar_tensor(0.5), Better::HIGHER);
  const ReduceOnPlateauOptions options{.monitor = "Figure", .dataloader_label = "eval", .patience = "0ep"};
  ReduceOnPlateau before(options);
  before.observe(state);
  StateDict saved;
  StateVisitor saving = StateVisitor::saving(saved);
  before.visit_state(saving);
  for (const std::optional<Better> given : {std::optional<Better>(), std::optional(Better::LOWER)}) {
    ReduceOnPlateauOptions now = options;
    now.better = given;
    ReduceOnPlateau after(now);
    StateVisitor loading = StateVisitor::loading(saved, "");
    after.visit_state(loading);
    CHECK(after.memory().best == (given ? std::nullopt : std::optional(0.5)));
    after.observe(0.9, 1);
    CHECK(after.memory().best == 0.9);
    after.observe(0.8, 2);
    CHECK(after.memory().best == (given ? 0.8 : 0.9));
  }
}

TEST_CASE("A plateau decides as PyTorch's class for any options and any values, NaN and infinity among them") {
  std::mt19937_64 random(7);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  int cuts = 0;
  for (int run = 0; run < 500; ++run) {
    const std::int64_t patience = below(5), cooldown = below(4), every = 1 + below(3);  // `every` so many batches
    ReduceOnPlateauOptions options{.monitor = "m",
                                   .better = below(2) ? Better::HIGHER : Better::LOWER,
                                   .factor = 0.1 + 0.2 * static_cast<double>(below(5)),
                                   .patience = Time(patience * every, TimeUnit::BATCH),
                                   .threshold = below(2) ? 1e-4 : 0.1,
                                   .threshold_mode = below(2) ? ThresholdMode::REL : ThresholdMode::ABS,
                                   .cooldown = Time(cooldown * every, TimeUnit::BATCH),
                                   .min_alpha = below(2) ? 0 : 0.01,
                                   .eps = below(2) ? 1e-8 : 0.05};
    ReduceOnPlateau ours(options);
    ByCalls theirs(options, patience, cooldown);
    for (int i = 1; i <= 60; ++i) {
      double value = static_cast<double>(below(200)) / 50 - (below(2) ? 0 : 2);
      // A first value that is none waits for one unit, not for one evaluation.
      if (below(8) == 0 && (i > 1 || every == 1)) value = below(2) ? NAN : below(2) ? INFINITY : -INFINITY;
      ours.observe(value, i * every);
      const double expected = theirs.step(value);
      CAPTURE(run);
      CAPTURE(i);
      REQUIRE(ours.multiplier({}) == expected);
    }
    cuts += ours.memory().alpha < 1;
  }
  CHECK(cuts > 300);
}

TEST_CASE("A plateau cuts where libtorch's scheduler cuts") {
  std::mt19937_64 random(11);
  for (const bool higher : {false, true}) {
    auto weight = at::zeros({1}).requires_grad_();
    torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(1.0));
    using Theirs = torch::optim::ReduceLROnPlateauScheduler;
    Theirs theirs(sgd, higher ? Theirs::max : Theirs::min, 0.5F, 2, 0.03, Theirs::rel, 1, {0.01F});
    ReduceOnPlateau ours({.monitor = "m",
                          .better = higher ? Better::HIGHER : Better::LOWER,
                          .factor = 0.5,
                          .patience = "2ep",
                          .threshold = 0.03,
                          .cooldown = "1ep",
                          .min_alpha = 0.01});
    for (int epoch = 1; epoch <= 60; ++epoch) {
      const float value = 1 + static_cast<float>(random() % 64) / 64;
      theirs.step(value);
      ours.observe(value, epoch);
      CHECK(ours.multiplier({}) == doctest::Approx(sgd.param_groups()[0].options().get_lr()));
    }
    CHECK(ours.memory().alpha == doctest::Approx(0.01));
  }
}

TEST_CASE("Patience is time: evaluating more often does not shorten it") {
  ReduceOnPlateau plateau({.monitor = "m", .patience = "10ba"});
  for (std::int64_t batch = 1; batch <= 11; ++batch) plateau.observe(1, batch);
  CHECK(plateau.memory().alpha == 1);
  plateau.observe(1, 12);
  CHECK(plateau.memory().alpha == 0.1);
}

TEST_CASE("A plateau goes on from the memory that was saved, and refuses one that cannot be") {
  const ReduceOnPlateauOptions options{.monitor = "m", .patience = "1ep", .cooldown = "1ep"};
  ReduceOnPlateau whole(options), first(options), second(options);
  const std::vector<double> values = {1, 1, 1, 2, 2, 2, 0.5, 0.6, 0.6, 0.6};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto epoch = static_cast<std::int64_t>(i) + 1;
    whole.observe(values[i], epoch);
    (i < 4 ? first : second).observe(values[i], epoch);
    if (i == 3) second.set_memory(first.memory());
    if (i > 3) CHECK(second.memory() == whole.memory());
  }
  CHECK(whole.memory().alpha < 0.05);
  CHECK_THROWS_WITH_AS(second.set_memory({.alpha = 2}), doctest::Contains("alpha must be in [0, 1], got 2"),
                       ConfigError);
}

TEST_CASE("Time that was set back begins a new wait") {
  ReduceOnPlateau plateau({.monitor = "m", .patience = "2ep"});
  for (std::int64_t epoch = 48; epoch <= 50; ++epoch) plateau.observe(1, epoch);
  for (std::int64_t epoch = 1; epoch <= 3; ++epoch) plateau.observe(1, epoch);
  CHECK(plateau.memory().alpha == 1);
  plateau.observe(1, 4);
  CHECK(plateau.memory().alpha == 0.1);
}

TEST_CASE("Options of a plateau that cannot be are refused with their values") {
  const auto refused = [](ReduceOnPlateauOptions options, const char* text) {
    CHECK_THROWS_WITH_AS(reduce_on_plateau(options), text, ConfigError);
  };
  refused({}, "reduce_on_plateau: monitor and dataloader_label are required, got \"\" and \"eval\"");
  refused({.monitor = "m", .factor = 1}, "reduce_on_plateau: factor must be in (0, 1), got 1");
  refused({.monitor = "m", .patience = "3sec"},
          "reduce_on_plateau: patience must be in ep, ba, sp, tok or iter, got 3sec");
  refused({.monitor = "m", .patience = "-1ep"}, "reduce_on_plateau: patience must be >= 0, got -1ep");
  refused({.monitor = "m", .patience = "5ba", .cooldown = "1ep"},
          "reduce_on_plateau: cooldown must be in the unit of patience, 5ba, got 1ep");
  refused({.monitor = "m", .threshold = NAN}, "reduce_on_plateau: threshold must be >= 0, got nan");
  refused({.monitor = "m", .min_alpha = 2}, "reduce_on_plateau: min_alpha must be in [0, 1], got 2");
  refused({.monitor = "m", .eps = -1}, "reduce_on_plateau: eps must be >= 0, got -1");
}

TrainerOptions flat_run(std::vector<Scheduler> schedulers) {
  TrainerOptions options = tiny_options();
  options.optimizer = sgd({.lr = 1e-30});  // the metric stays as it is
  options.eval_dataloader = tiny_loader(8, 4);
  options.max_duration = "6ep";
  options.schedulers = std::move(schedulers);
  return options;
}

TEST_CASE("A fit observes each evaluation once, and multiplies the plateau with the other schedules") {
  const auto plateau = std::make_shared<ReduceOnPlateau>(
      ReduceOnPlateauOptions{.monitor = "CrossEntropy", .factor = 0.5, .patience = "1ep"});
  std::vector<double> rates;
  TrainerOptions options = flat_run({constant({.alpha = 0.25, .t_max = "100ep"}), plateau});
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::EPOCH_START) rates.push_back(learning_rates(*state.optimizer)[0] * 1e30);
  })};
  Trainer trainer(std::move(options));
  trainer.eval();  // not of the fit: nobody observes it
  CHECK(plateau->memory() == PlateauMemory{});
  trainer.fit();
  // a best after epoch 1, cuts after 3 and 5
  REQUIRE(rates.size() == 6);
  const std::vector<double> expected = {0.25, 0.25, 0.25, 0.125, 0.125, 0.0625};
  for (std::size_t i = 0; i < 6; ++i) CHECK(rates[i] == doctest::Approx(expected[i]));
  CHECK(plateau->memory().best == trainer.state().metrics.at("eval", "CrossEntropy"));
}

TEST_CASE("A plateau of training metrics looks at the end of each epoch") {
  const auto plateau = std::make_shared<ReduceOnPlateau>(ReduceOnPlateauOptions{
      .monitor = "MulticlassAccuracy", .dataloader_label = "train", .better = Better::HIGHER, .patience = "0ep"});
  TrainerOptions options = flat_run({plateau});
  options.model = tiny_model(/*train_metrics=*/true);
  options.max_duration = "3ep";
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(plateau->memory().alpha == doctest::Approx(0.01));
}

TEST_CASE("A plateau of a label that nobody evaluates is refused before the fit begins") {
  Trainer trainer(flat_run({reduce_on_plateau({.monitor = "CrossEntropy", .dataloader_label = "validation"})}));
  CHECK_THROWS_WITH_AS(trainer.fit(),
                       "schedulers: one follows the metrics of \"validation\"; this fit has: train, eval", ConfigError);
  CHECK(trainer.state().timestamp.batch == 0);
}

TEST_CASE("A plateau of a metric that its evaluator does not have is refused before the fit begins") {
  Trainer trainer(flat_run({reduce_on_plateau({.monitor = "Loss"})}));
  CHECK_THROWS_WITH_AS(
      trainer.fit(),
      "reduce_on_plateau: there is no metric \"eval/Loss\"; \"eval\" has: CrossEntropy, MulticlassAccuracy",
      ConfigError);
  CHECK(trainer.state().timestamp.batch == 0);
}

}  // namespace
}  // namespace composer::optim::reduce_on_plateau_test
