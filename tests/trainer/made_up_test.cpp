// What was due when an error ended a fit is done by the next one, and nothing is done twice.
#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"

namespace composer::test::made_up_test {
namespace {

TrainerOptions options_of(const Folder& folder) {
  TrainerOptions options = tiny_options();
  options.model = tiny_model(/*train_metrics=*/true);
  options.max_duration = "2ep";
  options.device_train_microbatch_size = 2;
  options.eval_dataloader = tiny_loader(8, 4);
  options.eval_interval = "2ba";
  options.save_folder = folder / "ck";
  options.save_interval = "2ba";
  return options;
}

// Throws at the first such event from a batch on.
At fail_once(Event at, std::int64_t batch) {
  return At([=, fails = true](Event event, const State& state) mutable {
    if (event == at && state.timestamp.batch >= batch && std::exchange(fails, false)) throw std::runtime_error("boom");
  });
}

struct Counts {
  std::size_t evaluations, batch_checkpoints, epoch_checkpoints, saved;
  friend bool operator==(const Counts&, const Counts&) = default;
};

TEST_CASE(
    "After an error at any event the next fit() makes up for evaluations and checkpoints, and trains nothing twice") {
  at::Tensor weights;
  Counts expected{};
  {
    const Folder folder;
    auto log = std::make_shared<EventLog>();
    TrainerOptions options = options_of(folder);
    options.callbacks = {log};
    Trainer trainer(std::move(options));
    trainer.fit();
    weights = weights_of(trainer);
    expected = {log->count("eval_end"), log->count("batch_checkpoint"), log->count("epoch_checkpoint"),
                trainer.saved_checkpoints().size()};
  }
  CHECK(expected == Counts{4, 8, 2, 4});
  for (std::int64_t batch : {2, 3, 4, 8})
    for (int i = static_cast<int>(Event::FIT_START); i < static_cast<int>(Event::EVAL_STANDALONE_START); ++i) {
      const auto event = static_cast<Event>(i);
      CAPTURE(to_string(event));
      CAPTURE(batch);
      const Folder folder;
      auto log = std::make_shared<EventLog>();
      TrainerOptions options = options_of(folder);
      options.callbacks = {fail_once(event, batch), log};
      Trainer trainer(std::move(options));
      bool failed = false;
      try {
        trainer.fit();
      } catch (const RunError&) {
        failed = true;
        trainer.fit();
      }
      if (!failed) continue;
      CHECK(at::allclose(weights_of(trainer), weights, 0, 1e-6));
      CHECK(trainer.state().timestamp.batch == 8);
      CHECK(trainer.state().timestamp.epoch == 2);
      // What fails once is not seen by those behind it, but for what is evaluated again.
      Counts counts{log->count("eval_end"), log->count("batch_checkpoint"), log->count("epoch_checkpoint"),
                    trainer.saved_checkpoints().size()};
      if (event == Event::BATCH_CHECKPOINT) ++counts.batch_checkpoints;
      if (event == Event::EPOCH_CHECKPOINT) ++counts.epoch_checkpoints;
      if (event == Event::EVAL_AFTER_ALL) CHECK(counts.evaluations >= expected.evaluations);
      CHECK(counts == expected);
    }
}

TEST_CASE("An error of a logger or a metric does not train its batch twice") {
  struct Fails final : LoggerDestination {
    void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State&) override {
      for (const auto& [key, value] : metrics)
        if (key == fails_at && step == 2 && std::exchange(fails, false)) throw std::runtime_error("disk full");
    }
    std::string fails_at;
    bool fails = true;
  };
  at::Tensor weights;
  for (const char* key : {"nothing", "time/batch", "loss/train/total", "metrics/train/MulticlassAccuracy"}) {
    CAPTURE(key);
    const auto logger = std::make_shared<Fails>();
    logger->fails_at = key;
    TrainerOptions options = tiny_options();
    options.model = tiny_model(/*train_metrics=*/true);
    options.max_duration = "2ep";
    options.loggers = {logger};
    Trainer trainer(std::move(options));
    if (std::string(key) == "nothing") {
      trainer.fit();
      weights = weights_of(trainer);
    } else {
      CHECK_THROWS_AS(trainer.fit(), RunError);
      CHECK(trainer.state().timestamp.batch == (std::string(key) == "time/batch" ? 2 : 3));
      trainer.fit();
    }
    CHECK(trainer.state().timestamp.batch == 8);
    CHECK(weights_of(trainer).equal(weights));
  }
}

TEST_CASE("After an error in the final evaluation fit() makes up for it, and is then refused as done") {
  const Folder folder;
  TrainerOptions options = options_of(folder);
  options.eval_interval = "100ba";
  auto log = std::make_shared<EventLog>();
  options.callbacks = {fail_once(Event::EVAL_BATCH_END, 8), log};
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
  CHECK(log->count("eval_end") == 0);
  trainer.fit();
  CHECK(log->count("eval_end") == 1);
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("already reached"), ConfigError);
}

TEST_CASE("What another run, or another beginning, was owed is not made up") {
  const Folder folder;
  TrainerOptions options = options_of(folder);
  auto log = std::make_shared<EventLog>();
  options.callbacks = {fail_once(Event::EVAL_START, 2), log};
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
  trainer.fit({.duration = "1ba", .reset_time = true});
  CHECK(log->count("eval_end") == 1);  // that at the end
  CHECK(log->count("batch_checkpoint") == 2);
}

TEST_CASE("What an error has left undone is not made up for after another run was loaded") {
  const Folder folder;
  {
    TrainerOptions options = tiny_options();
    options.run_name = "other";
    options.save_folder = folder / "other";
    Trainer(std::move(options)).fit("2ba");
  }
  for (const Event fails_at : {Event::BATCH_END, Event::EPOCH_END, Event::FIT_END}) {
    CAPTURE(to_string(fails_at));
    bool failed = false;
    std::vector<std::string> events;
    TrainerOptions options = tiny_options();
    options.max_duration = "2ep";
    options.callbacks = {At([&](Event event, const State&) {
      if (failed) events.emplace_back(to_string(event));
      if (event == fails_at && !std::exchange(failed, true)) throw std::runtime_error("lost");
    })};
    Trainer trainer(std::move(options));
    CHECK_THROWS_AS(trainer.fit(), RunError);
    trainer.state().run->load({.path = folder / "other/ep0-ba2"});
    events.clear();
    trainer.begin();
    CHECK(events == std::vector<std::string>{"fit_start"});
    trainer.end();
  }
}

}  // namespace
}  // namespace composer::test::made_up_test
