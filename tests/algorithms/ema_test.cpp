#include "composer/algorithms/ema.h"

#include <cmath>
#include <memory>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/formats/weights.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/warnings.h"

namespace composer::ema_test {

using algorithms::EMA;
using algorithms::EMAOptions;

namespace {

std::shared_ptr<Model> model_with_buffers() {
  at::manual_seed(1);
  return std::make_shared<models::Classifier>(
      torch::nn::Sequential(torch::nn::Linear(4, 5), torch::nn::BatchNorm1d(5), torch::nn::Linear(5, 3)),
      models::ClassifierOptions{.num_classes = 3});
}

std::vector<at::Tensor> values_of(const Model& model) {
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : state_dict(model)) values.push_back(tensor.detach().clone());
  return values;
}

// The weights after each batch, and those that each evaluation had.
struct Seen {
  std::vector<std::vector<at::Tensor>> trained, evaluated;
};

std::shared_ptr<Callback> watch(Seen& seen) {
  return std::make_shared<test::At>([&seen](Event event, const State& state) {
    if (event == Event::BATCH_END) seen.trained.push_back(values_of(*state.model));
    if (event == Event::EVAL_START) seen.evaluated.push_back(values_of(*state.model));
  });
}

TrainerOptions options(const std::shared_ptr<EMA>& ema, Seen& seen) {
  TrainerOptions options = test::tiny_options();
  options.model = model_with_buffers();
  options.eval_dataloader = test::tiny_loader(6, 3);
  options.eval_interval = "1ba";
  options.max_duration = "2ep";
  options.algorithms = {ema};
  options.callbacks = {watch(seen)};
  return options;
}

bool close(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::allclose(a[i], b[i], 1e-5, 1e-6)) return false;
  return a.size() == b.size();
}

}  // namespace

TEST_CASE("EMA warns of weights whose type has too few digits for its half-life") {
  struct Case {
    at::ScalarType type;
    const char* half_life;
    bool warns;
  };
  for (const auto& [type, half_life, warns] :
       {Case{at::kBFloat16, "1000ba", true}, Case{at::kBFloat16, "10ba", false}, Case{at::kHalf, "1000ba", true},
        Case{at::kHalf, "100ba", false}, Case{at::kFloat, "1000ba", false}}) {
    CAPTURE(half_life);
    const test::Warnings warnings;
    EMA ema({.half_life = Time::parse(half_life)});
    test::FakeRun run;
    const auto model = test::tiny_model();
    model->to(type);
    run.state.model = Handle<Model>(model);
    for (int i = 0; i < 2; ++i) ema.apply(Event::BATCH_END, run.state, run.logger);
    CHECK(warnings.texts.size() == (warns ? 1 : 0));
    CHECK(warnings.say("which has too few digits for an average") == warns);
  }
}

TEST_CASE("EMA evaluates with the average of weights and buffers, and trains with the trained weights") {
  Seen seen, without;
  const auto ema = std::make_shared<EMA>(EMAOptions{.half_life = "2ba"});
  Trainer(options(ema, seen)).fit();
  {
    TrainerOptions plain = options(ema, without);
    plain.algorithms = {};
    Trainer(std::move(plain)).fit();
  }
  REQUIRE(seen.trained.size() == 8);
  REQUIRE(seen.evaluated.size() == 8);
  std::vector<at::Tensor> expected = seen.trained[0];
  for (std::size_t batch = 0; batch < 8; ++batch) {
    CAPTURE(batch);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor& now = seen.trained[batch][i];
      expected[i] = now.is_floating_point() ? expected[i] * std::sqrt(0.5) + now * (1 - std::sqrt(0.5)) : now;
      CHECK(now.equal(without.trained[batch][i]));
    }
    CHECK(close(seen.evaluated[batch], expected));
  }
}

TEST_CASE("EMA starts at ema_start with the weights of that moment, and updates every update_interval") {
  for (const Time start : {Time("3ba"), Time("0.375dur")}) {
    CAPTURE(to_string(start));
    Seen seen;
    TrainerOptions with = options(
        std::make_shared<EMA>(EMAOptions{.half_life = "2ba", .ema_start = start, .update_interval = "2ba"}), seen);
    with.max_duration = "8ba";
    Trainer(std::move(with)).fit();
    for (const std::size_t batch : {0, 1, 2}) CHECK(close(seen.evaluated[batch], seen.trained[batch]));
    std::vector<at::Tensor> expected = seen.trained[2];
    for (const std::size_t batch : {3, 5, 7}) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const at::Tensor& now = seen.trained[batch][i];
        expected[i] = now.is_floating_point() ? (expected[i] + now) / 2 : now;
      }
      CAPTURE(batch);
      CHECK(close(seen.evaluated[batch], expected));
      if (batch < 7) CHECK(close(seen.evaluated[batch + 1], expected));
    }
  }
}

TEST_CASE("EMA warns whenever nothing is averaged, at the start of the fit if that is known, else at its end") {
  struct Row {
    std::string start, half_life;
    OptionalTime end;
    std::string warning;  // empty: there are averages
  };
  const std::vector<Row> rows = {{"1dur", "1ba", "1ep", "ema_start is 1.0dur, and training ends at 1ep"},
                                 {"0.5dur", "1ba", "1ep", "ema_start is 0.5dur, and training ends at 1ep"},
                                 {"0.9dur", "1ba", "4ep", "ema_start is 0.9dur, and training ends at 4ep"},
                                 {"0.7dur", "1ba", "4ep", ""},
                                 {"0.75dur", "1ep", "4ep", ""},
                                 {"0.5dur", "1ba", "4ba", ""},
                                 {"0dur", "1ba", "1ep", ""},
                                 {"1ep", "1ba", "1ba", "training has ended, at 1ba, and no update has come"},
                                 {"0.5dur", "1ba", {}, "there is no max_duration that it is a share of"},
                                 {"0dur", "1ba", {}, ""}};
  for (const Row& row : rows) {
    CAPTURE(row.start);
    CAPTURE(row.warning);
    TrainerOptions with = test::tiny_options();
    const auto ema =
        std::make_shared<EMA>(EMAOptions{.half_life = Time::parse(row.half_life), .ema_start = Time::parse(row.start)});
    with.algorithms = {ema};
    with.max_duration = row.end;
    const test::Warnings warnings;
    Trainer trainer(std::move(with));
    trainer.begin();
    while (trainer.state().timestamp.epoch < 1 && trainer.step()) {
    }
    while (row.end && trainer.step()) {
    }
    trainer.end();
    CHECK(ema->averages().empty() == !row.warning.empty());
    CHECK(warnings.texts.size() == (row.warning.empty() ? 0 : 1));
    CHECK((row.warning.empty() || warnings.say(row.warning)));
  }
}

TEST_CASE("EMA warns if training ends before it starts") {
  for (const char* end : {"3ba", "4ba", "1ep"}) {
    Seen seen;
    const test::Warnings warnings;
    TrainerOptions with = options(std::make_shared<EMA>(EMAOptions{.half_life = "2ba", .ema_start = "3ba"}), seen);
    with.max_duration = Time::parse(end);
    Trainer(std::move(with)).fit();
    CHECK(warnings.say("EMA: ema_start is 3ba, and training ends at 3ba, so nothing is averaged") ==
          (std::string(end) == "3ba"));
  }
}

TEST_CASE("EMA counted in epochs changes the averages at the end of epochs only") {
  Seen seen;
  Trainer(options(std::make_shared<EMA>(EMAOptions{.half_life = "1ep"}), seen)).fit();
  for (const std::size_t batch : {4, 5, 6}) CHECK(close(seen.evaluated[batch], seen.trained[3]));
}

TEST_CASE("A run with EMA that is cut and resumed has the averages of one that is not") {
  const auto last_averages = [](bool cut) {
    const test::Folder folder;
    auto ema = std::make_shared<EMA>(EMAOptions{.half_life = "3ba"});
    for (const char* until : cut ? std::vector{"5ba", "8ba"} : std::vector{"8ba"}) {
      Seen seen;
      ema = std::make_shared<EMA>(EMAOptions{.half_life = "3ba"});
      TrainerOptions with = options(ema, seen);
      with.save_folder = folder / "ck";
      with.max_duration = Time::parse(until);
      Trainer trainer(std::move(with));
      trainer.fit();
    }
    return ema->averages();
  };
  const WeightsByName expected = last_averages(false), got = last_averages(true);
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].first == expected[i].first);
    CHECK(got[i].second.equal(expected[i].second));
  }
  test::check_cut_and_resumed(
      [] {
        TrainerOptions with = test::tiny_options();
        with.model = model_with_buffers();
        with.algorithms = {EMA({.half_life = "3ba"})};
        return with;
      },
      2);
}

TEST_CASE("A trainer that has loaded a checkpoint of EMA evaluates with the averages before it trains") {
  const test::Folder folder;
  Seen seen;
  TrainerOptions first = options(std::make_shared<EMA>(EMAOptions{.half_life = "3ba"}), seen);
  first.save_folder = folder / "ck";
  Trainer(std::move(first)).fit();
  const std::vector<at::Tensor> last = seen.evaluated.back();
  Seen again;
  TrainerOptions second = options(std::make_shared<EMA>(EMAOptions{.half_life = "3ba"}), again);
  second.save_folder = folder / "ck";
  Trainer(std::move(second)).eval();
  REQUIRE(again.evaluated.size() == 1);
  for (std::size_t i = 0; i < last.size(); ++i) CHECK(again.evaluated[0][i].equal(last[i]));
}

TEST_CASE("EMA begins anew in the next trainer") {
  const auto ema = std::make_shared<EMA>(EMAOptions{.half_life = "2ba"});
  std::vector<WeightsByName> averages;
  for (int i = 0; i < 2; ++i) {
    Seen seen;
    Trainer(options(ema, seen)).fit();
    averages.push_back(ema->averages());
  }
  for (std::size_t i = 0; i < averages[0].size(); ++i) CHECK(averages[0][i].second.equal(averages[1][i].second));
}

TEST_CASE("EMA leaves weights alone that are not trained") {
  const auto model = model_with_buffers();
  model->parameters()[0].set_requires_grad(false);
  const WeightsByName copies = algorithms::copy_weights(*model);
  CHECK(copies.size() == state_dict(*model).size() - 1);
  CHECK(copies[0].first == "module.0.bias");
}

TEST_CASE("compute_ema moves averages by the share that smoothing leaves, and copies counts") {
  const auto model = model_with_buffers();
  WeightsByName averages = algorithms::copy_weights(*model);
  const std::vector<at::Tensor> before = values_of(*model);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state_dict(*model)) tensor.add_(8);
  algorithms::compute_ema(*model, averages, 0.75);
  for (std::size_t i = 0; i < averages.size(); ++i)
    CHECK(at::allclose(averages[i].second, before[i] + (before[i].is_floating_point() ? 2 : 8)));
}

TEST_CASE("EMA takes its smoothing from half_life and update_interval, or as it is given") {
  CHECK(EMA().smoothing() == doctest::Approx(0.9993070929904525).epsilon(1e-15));
  CHECK(EMA({.half_life = "10ba", .update_interval = "5ba"}).smoothing() == doctest::Approx(std::sqrt(0.5)));
  const EMA given({.smoothing = 0.9});
  CHECK(given.smoothing() == 0.9);
  CHECK(given.update_interval() == Time("1ba"));
}

TEST_CASE("EMA refuses options that make no sense, with their values") {
  CHECK_THROWS_WITH_AS(EMA({.half_life = "100sp"}),
                       "EMA: half_life must be > 0, in batches (ba) or epochs (ep), got 100sp", ConfigError);
  CHECK_THROWS_AS(EMA({.half_life = "0ba"}), ConfigError);
  CHECK_THROWS_WITH_AS(EMA({.half_life = "10ba", .update_interval = "1ep"}),
                       "EMA: update_interval must be in the unit of half_life, 10ba, got 1ep", ConfigError);
  CHECK_THROWS_WITH_AS(EMA({.half_life = "9ba", .smoothing = 0.9}),
                       "EMA: half_life is 9ba and smoothing is 0.9; give one of the two", ConfigError);
  CHECK_THROWS_AS(EMA({.smoothing = 1}), ConfigError);
  CHECK_THROWS_AS(EMA({.smoothing = NAN}), ConfigError);
  CHECK_THROWS_WITH_AS(EMA({.ema_start = "1.5dur"}), doctest::Contains("ema_start"), ConfigError);
  CHECK_THROWS_AS(EMA({.ema_start = "-1ba"}), ConfigError);
}

}  // namespace composer::ema_test
