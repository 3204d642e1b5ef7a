// What an evaluation or prediction draws is its own: training draws the same numbers however often one evaluates, and
// after a signal in an evaluation a resumed run ends as if there had been none.
#include <csignal>

#include "composer/data/data_spec.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"

namespace composer::test::evaluation_random_test {
namespace {

// Draws for each batch.
AnyDataSpec noisy_loader() {
  DataSpec spec{.dataloader = tiny_loader(8, 4)};
  spec.batch_transforms = [](Batch& batch) { batch.set("input", batch["input"] + at::randn_like(batch["input"])); };
  return AnyDataSpec(spec);
}

TrainerOptions noisy_options() {
  TrainerOptions options = tiny_options();
  options.model = model_with_memory();
  options.train_dataloader = noisy_loader();
  options.eval_dataloader = noisy_loader();
  options.max_duration = "4ep";
  options.seed = 3;
  return options;
}

TEST_CASE("Training draws the same numbers however often one evaluates, predicts or calls eval()") {
  const auto trained = [](Interval interval, bool calls) {
    TrainerOptions options = noisy_options();
    options.eval_interval = interval;
    Trainer trainer(std::move(options));
    trainer.begin();
    while (trainer.step()) {
      if (!calls) continue;
      trainer.eval();
      trainer.predict(noisy_loader());
    }
    trainer.end();
    return weights_of(trainer);
  };
  const at::Tensor weights = trained("0ep", false);
  CHECK(trained("1ba", false).equal(weights));
  CHECK(trained("3ep", true).equal(weights));
}

TEST_CASE("A run that a signal ends in an evaluation that draws goes on as if there had been no signal") {
  Trainer whole(noisy_options());
  whole.fit();
  for (const Event moment : {Event::EVAL_BEFORE_ALL, Event::EVAL_START, Event::EVAL_BATCH_START, Event::EVAL_BATCH_END,
                             Event::EVAL_END, Event::EVAL_AFTER_ALL}) {
    CAPTURE(to_string(moment));
    const Folder folder;
    const auto saving = [&] {
      TrainerOptions options = noisy_options();
      options.save_folder = folder / "ck";
      return options;
    };
    {
      TrainerOptions options = saving();
      options.handle_signals = true;
      options.callbacks = {At([=](Event event, const State& state) {
        if (event == moment && state.timestamp.epoch == 2) std::raise(SIGTERM);
        if (event == moment) at::rand({1});  // of the evaluation, too
      })};
      Trainer trainer(std::move(options));
      trainer.fit();
      REQUIRE(trainer.interrupted_by() == SIGTERM);
    }
    Trainer resumed(saving());
    resumed.fit();
    CHECK(weights_of(resumed).equal(weights_of(whole)));
    CHECK(resumed.state().metrics.at("eval", "CrossEntropy") == whole.state().metrics.at("eval", "CrossEntropy"));
  }
}

TEST_CASE("Each call of eval() or predict() at one batch draws other numbers, and each run the same") {
  const auto drawn = [] {
    Trainer trainer(noisy_options());
    std::vector<double> values;
    for (int call = 0; call < 2; ++call) {
      trainer.eval();
      values.push_back(trainer.state().metrics.at("eval", "CrossEntropy"));
      values.push_back(trainer.predict(noisy_loader()).front().only().sum().item<double>());
    }
    return values;
  };
  const std::vector<double> values = drawn();
  CHECK(values[0] != values[2]);
  CHECK(values[1] != values[3]);
  CHECK(drawn() == values);
}

}  // namespace
}  // namespace composer::test::evaluation_random_test
