#include "composer/core/on.h"

#include <memory>
#include <stdexcept>

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/plugins.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::on_test {

TEST_CASE("A function is called at its event, with the state and the logger, and at no other") {
  for (const Event event : {Event::INIT, Event::BATCH_END, Event::EVAL_END, Event::FIT_END}) {
    CAPTURE(to_string(event));
    TrainerOptions options = test::tiny_options();
    options.eval_dataloader = test::tiny_loader(4, 4);
    int calls = 0, events = 0;
    std::int64_t batches = -1;
    options.callbacks = {on(event,
                            [&](const State& state, Logger& logger) {
                              ++calls;
                              batches = state.timestamp.batch;
                              logger.log_metrics({{"seen", state.timestamp.batch}});
                            }),
                         test::At([&](Event at, const State&) { events += at == event; })};
    Trainer(std::move(options)).fit();
    CHECK(events == (event == Event::BATCH_END ? 4 : 1));
    CHECK(calls == events);
    CHECK(batches == (event == Event::INIT ? 0 : 4));
  }
}

TEST_CASE("The engine registers a function for its event only") {
  const Callbacks callbacks = {on(Event::BATCH_END, [](const State&, Logger&) {})};
  CHECK(callbacks.list().at(0).events == EventSet{Event::BATCH_END});
}

TEST_CASE("A function may take the state alone, keep state of its own and own what cannot be copied") {
  TrainerOptions options = test::tiny_options();
  std::int64_t last = 0;
  options.callbacks = {on(Event::BATCH_END, [&last, sum = std::make_unique<std::int64_t>(0)](
                                                const State& state) mutable { last = *sum += state.timestamp.batch; })};
  Trainer(std::move(options)).fit();
  CHECK(last == 1 + 2 + 3 + 4);
}

TEST_CASE("A function behind a shared_ptr to Callback is called at its event only") {
  int calls = 0;
  const std::shared_ptr<Callback> callback =
      std::make_shared<decltype(on(Event::EPOCH_END, std::function<void(const State&)>()))>(
          Event::EPOCH_END, [&calls](const State&) { ++calls; });
  TrainerOptions options = test::tiny_options();
  options.callbacks.add(callback);
  Trainer(std::move(options)).fit();
  CHECK(calls == 1);
}

TEST_CASE("An error in a function names its event") {
  TrainerOptions options = test::tiny_options();
  options.callbacks = {on(Event::BATCH_END, [](const State& state) {
    if (state.timestamp.batch == 3) throw std::runtime_error("too warm");
  })};
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("callback on BATCH_END failed at batch_end, epoch 0, batch 3"),
                       RunError);
}

TEST_CASE("Checkpoints contain nothing of functions") {
  const auto nothing = [](const State&) {};
  TrainerOptions saving = test::tiny_options();
  saving.callbacks = {on(Event::BATCH_END, nothing), on(Event::BATCH_END, nothing)};
  StateDict saved;
  {
    Trainer trainer(std::move(saving));
    trainer.fit();
    saved = trainer.state().run->snapshot(/*weights_only=*/false);
  }
  const auto* callbacks = std::get_if<StateDict>(saved.find("callbacks"));
  REQUIRE(callbacks);
  CHECK(callbacks->find("callback on BATCH_END") == nullptr);
}

}  // namespace composer::on_test
