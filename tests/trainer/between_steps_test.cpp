// What a program does between two steps: asks whether training is over, draws, evaluates, drops the fit, sets rates.
#include <csignal>

#include "composer/core/error.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::between_steps_test {
namespace {

TrainerOptions four_given_batches() {
  TrainerOptions options = tiny_options();
  options.train_dataloader = {};
  options.max_duration = "4ba";
  options.save_interval = "2ba";
  return options;
}

TEST_CASE("done() is whether the next step would train, and changes nothing") {
  for (const char* why : {"limit", "stop", "signal"}) {
    CAPTURE(why);
    TrainerOptions options = four_given_batches();
    options.handle_signals = true;
    Trainer trainer(std::move(options));
    CHECK_THROWS_WITH_AS((void)trainer.done(), doctest::Contains("done() before begin()"), ConfigError);
    trainer.begin();
    int trained = 0;
    while (!trainer.done()) {
      CHECK_FALSE(trainer.done());
      REQUIRE(trainer.step(tiny_data(4)));
      ++trained;
      if (trained == 2 && why == std::string("stop")) trainer.state().stop.ask("enough");
      if (trained == 2 && why == std::string("signal")) std::raise(SIGTERM);
    }
    CHECK(trainer.interrupted_by() == 0);  // told by step() and end() alone
    CHECK_FALSE(trainer.step(tiny_data(4)));
    CHECK(trained == (why == std::string("limit") ? 4 : 2));
    trainer.end();
  }
}

TEST_CASE("What a program draws from generator() between two steps is the same after a resume") {
  const auto run = [](const std::string& folder, int stop_after) {
    TrainerOptions options = four_given_batches();
    options.save_folder = folder;
    options.seed = 3;
    Trainer trainer(std::move(options));
    trainer.begin();
    double last = 0;
    for (int i = 0; i < stop_after && !trainer.done(); ++i) {
      Batch batch = tiny_data(4);
      batch.set("input", at::rand({4, 4}, trainer.generator()));
      last = batch["input"].sum().item<double>();
      trainer.step(batch);
    }
    if (stop_after > 4) trainer.end();
    return std::pair(last, weights_of(trainer));
  };
  const Folder whole, parts;
  const auto [expected_last, expected] = run(whole / "ck", 5);
  {
    const Warnings quiet;  // dropped without end()
    run(parts / "ck", 3);
  }
  const auto [last, weights] = run(parts / "ck", 5);
  CHECK(last == expected_last);
  CHECK(at::equal(weights, expected));
}

TEST_CASE("A model that is left in evaluation mode between two steps is told once a fit") {
  for (const bool gives_batches : {false, true}) {
    const auto step = [&](Trainer& trainer) { return gives_batches ? trainer.step(tiny_data(4)) : trainer.step(); };
    TrainerOptions options = gives_batches ? four_given_batches() : tiny_options();
    Trainer trainer(std::move(options));
    for (int fit = 0; fit < 2; ++fit) {
      const Warnings warnings;
      trainer.begin({.duration = "3ba"});
      step(trainer);
      trainer.state().model->eval();
      trainer.state().model->train();
      step(trainer);
      CHECK(warnings.texts.empty());
      trainer.state().model->eval();
      const std::string place = std::to_string(trainer.state().timestamp.batch);
      step(trainer);
      step(trainer);
      trainer.end();
      CHECK(warnings.texts ==
            std::vector<std::string>{"model: is in evaluation mode at batch " + place +
                                     ", so it trains without dropout and with fixed batch norms; call model->train() "
                                     "before the step"});
    }
  }
}

TEST_CASE("generator() of a device that the trainer does not use is refused") {
  Trainer trainer(tiny_options());
  CHECK_THROWS_WITH_AS((void)trainer.generator(at::kMeta), doctest::Contains("meta"), ConfigError);
  const at::Tensor drawn = at::rand({2}, trainer.generator());
  CHECK_FALSE(at::equal(drawn, at::rand({2}, trainer.generator())));
}

TEST_CASE("A fit that is dropped without end() says what is not saved, once, if anything was trained since") {
  struct Row {
    const char* why;
    int steps;
    bool folder, ends;
    const char* text;
  };
  for (const auto& [why, steps, folder, ends, text] : {
           Row{"one batch since", 3, true, false, "from batch 2 to batch 3 is not saved"},
           Row{"never saved", 1, true, false, "from batch 0 to batch 1 is not saved"},
           Row{"saved", 2, true, false, ""},
           Row{"nothing trained", 0, true, false, ""},
           Row{"nowhere to save", 3, false, false, ""},
           Row{"ended", 3, true, true, ""},
       })
    for (const bool closes : {true, false}) {
      CAPTURE(why);
      CAPTURE(closes);
      const Folder saved;
      TrainerOptions options = four_given_batches();
      if (folder) options.save_folder = saved / "ck";
      const Warnings warnings;
      {
        Trainer trainer(std::move(options));
        trainer.begin();
        for (int i = 0; i < steps; ++i) trainer.step(tiny_data(4));
        if (ends) trainer.end();
        if (closes) trainer.close();
      }
      CHECK(warnings.texts.size() == (std::string(text).empty() ? 0 : 1));
      if (!warnings.texts.empty()) CHECK_MESSAGE(warnings.say(text), warnings.texts.front());
    }
}

TEST_CASE("eval() between two steps evaluates all, also after a signal") {
  TrainerOptions options = four_given_batches();
  options.eval_dataloader = tiny_loader(16, 4);
  options.eval_interval = "0ba";
  options.handle_signals = true;
  auto log = std::make_shared<EventLog>();
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  trainer.begin();
  trainer.step(tiny_data(4));
  std::raise(SIGTERM);
  trainer.eval();
  CHECK(log->count("eval_batch_end") == 4);
  CHECK(trainer.state().metrics.find("eval", "MulticlassAccuracy") != nullptr);
  CHECK(trainer.done());
  trainer.end();
  CHECK(trainer.interrupted_by() == SIGTERM);
}

TEST_CASE("A learning rate that is set between two fits is the one that schedules multiply, and others stay") {
  for (const bool scheduled : {true, false}) {
    TrainerOptions options = tiny_options();
    options.max_duration = "8ep";
    if (scheduled) options.schedulers = {[](const optim::ScheduleContext&) { return 0.5; }};
    Trainer trainer(std::move(options));
    const double share = scheduled ? 0.5 : 1;
    const auto rate = [&] { return optim::learning_rates(*trainer.state().optimizer)[0]; };
    trainer.fit("1ep");
    CHECK(rate() == doctest::Approx(0.1 * share));
    trainer.fit("1ep");
    CHECK(rate() == doctest::Approx(0.1 * share));
    optim::set_learning_rate(*trainer.state().optimizer, 0, 0.4);
    trainer.fit("1ep");
    CHECK(rate() == doctest::Approx(0.4 * share));
    trainer.fit("1ep");
    CHECK(rate() == doctest::Approx(0.4 * share));
  }
}

TEST_CASE("Rates that only a schedule has changed are not taken for the program's") {
  TrainerOptions options = tiny_options();
  options.schedulers = {optim::linear({.alpha_f = 0.1})};
  Trainer trainer(std::move(options));
  for (int i = 0; i < 3; ++i) {
    trainer.fit({.duration = "1ep"});
    CHECK(optim::learning_rates(*trainer.state().optimizer)[0] == doctest::Approx(0.01));
  }
}

TEST_CASE("A loader with shorter epochs is refused in the middle of one, when the fit begins") {
  Trainer trainer(tiny_options());
  trainer.fit("3ba");
  CHECK_THROWS_WITH_AS(trainer.fit({.train_dataloader = tiny_loader(8, 4), .duration = "1ba"}),
                       doctest::Contains("train_dataloader: training stands after batch 3 of an epoch, and"),
                       ConfigError);
  CHECK_NOTHROW(trainer.fit({.train_dataloader = tiny_loader(12, 4), .duration = "1ba"}));
}

TEST_CASE("An interruption names the checkpoint of its batch, and says so if there is none") {
  const Folder folder;
  TrainerOptions options = four_given_batches();
  options.save_folder = folder / "ck";
  options.save_interval = "0ba";
  options.handle_signals = true;
  Trainer trainer(std::move(options));
  const Warnings warnings;
  trainer.begin();
  trainer.step(tiny_data(4));
  trainer.save_checkpoint("mine");
  trainer.step(tiny_data(4));
  std::raise(SIGTERM);
  trainer.end();
  CHECK(warnings.say("what came after " + (folder / "ck/mine").string() + " is not saved"));
}

TEST_CASE("A run_name that would lead out of the save folder is refused") {
  for (const char* name : {"../../out", "a/../../b", "..", ".", "/etc/run"}) {
    CAPTURE(name);
    const Folder folder;
    TrainerOptions options = tiny_options();
    options.run_name = name;
    options.save_folder = folder / "ck/{run_name}";
    CHECK_THROWS_WITH_AS(Trainer(std::move(options)), doctest::Contains("run_name: "), ConfigError);
  }
  const Folder folder;
  TrainerOptions options = tiny_options();
  options.run_name = "team/first..second";
  options.save_folder = folder / "ck/{run_name}";
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.saved_checkpoints().front().ends_with("ck/team/first..second/ep1-ba4"));
}

}  // namespace
}  // namespace composer::test::between_steps_test
