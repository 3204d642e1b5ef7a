// Values of checkpoints when a process was killed, and started again.
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/callbacks/checkpoint_saver.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/model_access.h"
#include "composer/core/state_dict.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/killed.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"
#include "tests/trainer/measured_weights.h"

namespace composer::test::noted_values_test {
namespace {

namespace fs = std::filesystem;
using measured_weights::ema;
using measured_weights::none;
using measured_weights::noted;
using measured_weights::options_of;
using measured_weights::scale_weights;

TEST_CASE("The last checkpoint of CheckpointSaver gets its value also if the program was killed in its evaluation") {
  std::vector<std::string> best;
  for (const bool dies : {false, true}) {
    const Folder folder;
    const auto run = [&](bool is_killed) {
      TrainerOptions options = options_of(none);
      options.max_duration = "10ba";
      options.save_folder = folder / "ck";
      options.save_interval = options.eval_interval = "4ba";
      options.callbacks = {callbacks::CheckpointSaver({.folder = folder / "more",
                                                       .save_interval = "4ba",
                                                       .num_checkpoints_to_keep = 1,
                                                       .best = saving::Best{.metric = "eval/CrossEntropy"}}),
                           killed_at(Event::EVAL_BATCH_START, is_killed ? 10 : -1)};
      Trainer(std::move(options)).fit();
    };
    const Warnings quiet;
    if (dies) CHECK_THROWS(run(true));
    run(false);
    best.push_back(fs::read_symlink(folder / "more/best"));
  }
  CHECK(best[0] == best[1]);
}

TEST_CASE("A value that a killed process had not noted in its checkpoint is noted by the next one") {
  std::vector<std::map<std::string, double>> noted_there;
  for (const bool dies : {false, true}) {
    const Folder folder;
    const auto run = [&](bool is_killed) {
      TrainerOptions options = options_of(none);
      options.max_duration = "2ep";
      options.save_folder = folder / "ck";
      options.save_interval = "1ba";
      options.callbacks = {
          callbacks::CheckpointSaver(
              {.folder = folder / "more", .save_interval = "4ba", .best = saving::Best{.metric = "eval/CrossEntropy"}}),
          killed_at(Event::BATCH_START, is_killed ? 6 : -1)};
      Trainer(std::move(options)).fit();
    };
    const Warnings quiet;
    if (dies) CHECK_THROWS(run(true));
    run(false);
    noted_there.push_back(saving::open_checkpoint(folder / "more/ep0-ba4").manifest.metrics);
  }
  CHECK(noted_there[0].contains("eval/CrossEntropy"));
  CHECK(noted_there[0] == noted_there[1]);
}

TEST_CASE("A run that goes on without save_best saves the same weights again under the name that they have") {
  const Folder folder;
  const auto options_with = [&](bool best) {
    TrainerOptions options = options_of(none);
    options.max_duration = "2ep";
    options.save_folder = folder / "ck";
    options.save_filename = "ba{batch}";
    options.save_interval = options.eval_interval = "4ba";
    if (best) options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
    options.callbacks = {At([=](Event event, const State& state) {
      if (best && event == Event::BATCH_START && state.timestamp.batch == 6) throw std::runtime_error("killed");
      if (!best && event == Event::EPOCH_END) state.stop.ask("a pause");
    })};
    return options;
  };
  const Warnings quiet;
  CHECK_THROWS(Trainer(options_with(true)).fit());
  Trainer trainer(options_with(false));
  CHECK_NOTHROW(trainer.fit());
  CHECK(fs::exists(folder / "ck/ba4"));
}

TEST_CASE("Weights that a program changes after a fit are saved by it, also if it was killed before") {
  for (const bool killed : {false, true}) {
    CAPTURE(killed);
    const Folder folder;
    std::string path;
    for (const bool saves : {false, true}) {
      if (!saves && !killed) continue;
      const Warnings quiet;
      TrainerOptions options = options_of(none);
      options.save_folder = folder / "ck";
      Trainer trainer(std::move(options));
      trainer.fit();
      scale_weights(trainer.state(), 0.5);
      if (saves) path = trainer.save_checkpoint();
      const at::Tensor own = parameters(as_module(*trainer.state().model))[0];
      if (!saves) continue;
      StateDict saved = saving::load(saving::open_checkpoint(path));
      CHECK(std::get<at::Tensor>(std::get<StateDict>(saved["model"]).entries()[0].second).equal(own));
    }
    CHECK(path.ends_with("-2"));
  }
}

TEST_CASE("Weights that the program has set are not those that were measured, also if it predicts before it saves") {
  const Folder folder;
  const Warnings quiet;
  TrainerOptions options = options_of(ema);
  options.save_folder = folder / "ck";
  Trainer trainer(std::move(options));
  trainer.fit();
  scale_weights(trainer.state(), 0.5);
  trainer.predict(tiny_loader(4, 4));
  CHECK_FALSE(noted(saving::open_checkpoint(trainer.save_checkpoint("other")), "eval/CrossEntropy"));
}

}  // namespace
}  // namespace composer::test::noted_values_test
