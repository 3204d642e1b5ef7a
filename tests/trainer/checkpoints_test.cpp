// When a run's checkpoints are written and what is noted of them, without a trainer.
#include "composer/trainer/checkpoints.h"

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/warnings.h"
#include "tests/trainer/saving_run.h"

namespace composer::test::checkpoints_test {
namespace {

namespace fs = std::filesystem;

TEST_CASE("Without a save_folder nothing is saved, noted or told") {
  SavingRun run("");
  const Warnings warnings;
  Checkpoints& none = *run.checkpoints;
  none.identity().begin(/*has_callbacks=*/true);
  none.begin_fit(0);
  none.measured().before_step(run.state);
  none.measured().after_step(run.state);
  run.end_epoch();
  none.measured().after_evaluation(run.state);
  none.save_last();
  none.warn_if_changed();
  none.finish();
  none.wait_for_mirror();
  none.end_fit();
  none.end_run(/*well=*/true);
  CHECK_FALSE(none.identity().is_resumable());
  CHECK_FALSE(none.identity().begins_again());
  CHECK_FALSE(none.have_batch());
  CHECK(none.identity().text().empty());
  CHECK(none.paths().all().empty());
  CHECK(none.paths().best() == std::nullopt);
  CHECK(warnings.texts.empty());
  none.warn_of_signal(SIGTERM);
  CHECK(warnings.say("interrupted (SIGTERM) after batch 1; nothing is saved, because there is no save_folder"));
}

TEST_CASE("What is due is saved once, and the end of a fit saves what is not saved yet") {
  const Folder folder;
  SavingRun run(folder / "ck");
  run.checkpoints->begin_fit(0);
  run.end_epoch();
  CHECK(run.checkpoints->have_batch());
  run.checkpoints->save_last();
  CHECK(run.checkpoints->paths().all().size() == 1);
  run.state.previous_timestamp = run.state.timestamp;
  run.state.timestamp = run.state.timestamp.to_next_batch(4, 0, Seconds(1));
  CHECK_FALSE(run.checkpoints->have_batch());
  run.checkpoints->save_if_due(Event::BATCH_CHECKPOINT);
  CHECK(run.checkpoints->paths().all().size() == 1);
  run.checkpoints->save_last();
  run.checkpoints->finish();
  CHECK(run.checkpoints->paths().all() == std::vector<std::string>{folder / "ck/ep1-ba1", folder / "ck/ep1-ba2"});
  for (const std::string& path : run.checkpoints->paths().all()) CHECK(fs::exists(path));
}

}  // namespace
}  // namespace composer::test::checkpoints_test
