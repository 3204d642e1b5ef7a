// What a checkpoint brings back, and what a load makes obsolete.
#include <stdexcept>
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/skippable_sgd.h"
#include "tests/support/tiny.h"

namespace composer::test::restored_test {
namespace {

// The scale of the losses, as the next checkpoint would have it.
double scale_of(const State& state) {
  const StateDict saved = state.run->snapshot(false);
  const auto& scaler = std::get<StateDict>(*saved.find("scaler"));
  return std::get<at::Tensor>(*scaler.find("scale")).item<double>();
}

TEST_CASE("A run with a grad scaler that resumes goes on with the scale and the count that it had") {
  const Folder folder;
  const auto run = [&](bool dies, bool resumes) {
    std::vector<double> scales;
    TrainerOptions options = tiny_options();
    options.optimizer = skippable_sgd(0.1);
    options.grad_scaler = optim::GradScalerOptions{.init_scale = 16, .growth_interval = 2};
    options.max_duration = "8ba";
    options.save_folder = folder / (resumes ? "ck" : "whole");
    options.save_interval = "1ba";
    options.callbacks = {At([&, dies](Event event, const State& state) {
      if (event == Event::BATCH_CHECKPOINT) scales.push_back(scale_of(state));
      if (dies && event == Event::BATCH_START && state.timestamp.batch == 5) throw std::runtime_error("killed");
    })};
    Trainer trainer(std::move(options));
    if (dies)
      CHECK_THROWS_AS(trainer.fit(), RunError);
    else
      trainer.fit();
    return scales;
  };
  const std::vector<double> whole = run(false, false), before = run(true, true), after = run(false, true);
  CHECK(whole == std::vector<double>{16, 32, 32, 64, 64, 128, 128, 256});
  CHECK(before == std::vector<double>(whole.begin(), whole.begin() + 5));
  CHECK(after == std::vector<double>(whole.begin() + 5, whole.end()));
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

TEST_CASE("The losses of the last batch keep no graph alive, and a trial of microbatch sizes leaves none of its own") {
  for (const bool automatic : {false, true}) {
    CAPTURE(automatic);
    std::vector<bool> wants_gradients;
    std::vector<std::size_t> at_start;
    TrainerOptions options = tiny_options();
    if (automatic) options.device_train_microbatch_size = "auto";
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::BEFORE_TRAIN_BATCH) at_start.push_back(state.batch_loss.size());
      if (event != Event::BATCH_END) return;
      const at::Tensor& loss = state.batch_loss.at("total");
      wants_gradients.push_back(loss.requires_grad() || loss.grad_fn() != nullptr);
    })};
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(wants_gradients == std::vector<bool>(4, false));
    CHECK(at_start.front() == 0);
  }
}

}  // namespace
}  // namespace composer::test::restored_test
