// What a program does between two steps: asks whether training is over, draws, evaluates, drops the fit, sets rates.
#include <csignal>

#include <doctest/doctest.h>

#include "composer/core/error.h"
#include "composer/optim/schedulers.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test {
namespace {

TrainerOptions four_given_batches() {
  TrainerOptions options = tiny_options();
  options.train_dataloader = {};
  options.max_duration = "4ba";
  options.save_interval = "2ba";
  return options;
}

TEST_CASE("A run_name that would lead out of the save folder is refused") {
  for (const char* name : {"../../out", "a/../../b", "..", "/etc/run"}) {
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
}  // namespace composer::test
