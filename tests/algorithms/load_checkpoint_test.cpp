#include "composer/algorithms/load_checkpoint.h"

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"

namespace composer::test::load_checkpoint_test {
namespace {

using algorithms::LoadCheckpoint;
using algorithms::LoadCheckpointOptions;

// Four batches, saved after each.
at::Tensor trained(const Folder& folder) {
  TrainerOptions options = tiny_options();
  options.run_name = "before";
  options.save_folder = folder / "{run_name}";
  options.save_interval = "1ba";
  Trainer trainer(std::move(options));
  trainer.fit();
  return weights_of(trainer).clone();
}

TrainerOptions loading(LoadCheckpointOptions load) {
  TrainerOptions options = tiny_options();
  options.max_duration = "2ep";
  options.algorithms = {LoadCheckpoint(std::move(load))};
  return options;
}

TEST_CASE("LoadCheckpoint: a run begins where the checkpoint ends, or with its weights alone") {
  const Folder folder;
  const at::Tensor weights = trained(folder);
  for (const Event event : {Event::BEFORE_LOAD, Event::AFTER_LOAD}) {
    Trainer whole(loading({.load_path = folder / "before/latest", .event = event}));
    CHECK(whole.state().timestamp.batch == 4);
    CHECK(weights_of(whole).equal(weights));
    Trainer part(loading({.load_path = folder / "before/latest", .load_weights_only = true, .event = event}));
    CHECK(part.state().timestamp.batch == 0);
    CHECK(weights_of(part).equal(weights));
  }
}

TEST_CASE("LoadCheckpoint: weights come back whenever the event happens") {
  const Folder folder;
  const at::Tensor weights = trained(folder);
  TrainerOptions options =
      loading({.load_path = folder / "before/latest", .load_weights_only = true, .event = Event::EPOCH_START});
  int seen = 0;
  options.callbacks.add(At([&](Event event, const State& state) {
    if (event != Event::EPOCH_START) return;
    CHECK(state.model->parameters()[0].flatten().equal(weights.slice(0, 0, 12)));
    ++seen;
  }));
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(seen == 2);
  CHECK_FALSE(weights_of(trainer).equal(weights));
}

TEST_CASE("LoadCheckpoint: the trainer's own load_path has the last word, and keys can be left out") {
  const Folder folder;
  trained(folder);
  TrainerOptions options = loading({.load_path = folder / "before/latest"});
  options.load_path = folder / "before/ep0-ba2";
  Trainer trainer(std::move(options));
  CHECK(trainer.state().timestamp.batch == 2);
  Trainer without(loading({.load_path = folder / "before/latest", .ignore_keys = {"model/*"}}));
  CHECK(without.state().timestamp.batch == 4);
  Trainer fresh(tiny_options());
  CHECK(weights_of(without).equal(weights_of(fresh)));
}

TEST_CASE("LoadCheckpoint: a run that goes on from its own checkpoint is not put back") {
  const Folder folder;
  trained(folder);
  const auto options = [&](Event event) {
    TrainerOptions options =
        loading({.load_path = folder / "before/ep0-ba2", .load_weights_only = true, .event = event});
    options.run_name = "after";
    options.save_folder = folder / ("{run_name}-" + std::string(to_string(event)));
    return options;
  };
  for (const Event event : {Event::BEFORE_LOAD, Event::AFTER_LOAD, Event::FIT_START}) {
    CAPTURE(to_string(event));
    at::Tensor weights;
    {
      Trainer trainer(options(event));
      trainer.fit("1ep");
      weights = weights_of(trainer).clone();
    }
    Trainer trainer(options(event));
    CHECK(trainer.state().timestamp.batch == 4);
    trainer.begin();
    CHECK(weights_of(trainer).equal(weights));
  }
}

TEST_CASE("LoadCheckpoint: its path is told as it was given, in whatever folder the program is") {
  const auto told = [](const std::string& path) {
    return std::get<std::string>(*LoadCheckpoint({.load_path = path}).local_hparams().find("load_path"));
  };
  CHECK(told("before/latest") == "before/latest");
  CHECK(told("/before/latest") == "/before/latest");
  CHECK(told("https://host/before?X-Amz-Signature=secret").find("secret") == std::string::npos);
}

TEST_CASE("LoadCheckpoint: what cannot be loaded, or not then, is an error") {
  CHECK_THROWS_AS(LoadCheckpoint({.load_path = ""}), ConfigError);
  CHECK_THROWS_AS(LoadCheckpoint({.load_path = "x", .event = Event::FIT_START}), ConfigError);
  const Folder folder;
  CHECK_THROWS_WITH_AS(Trainer(loading({.load_path = folder / "none"})),
                       doctest::Contains("LoadCheckpoint failed at before_load"), RunError);
}

}  // namespace
}  // namespace composer::test::load_checkpoint_test
