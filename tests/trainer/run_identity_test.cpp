// Which run a trainer has, and whose files are whose, without a trainer.
#include "composer/trainer/run_identity.h"

#include <string>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/trainer/saving_run.h"

namespace composer::test::run_identity_test {
namespace {

TEST_CASE("A run is begun again unless it was refused, has ended well, or has a checkpoint") {
  const Folder folder;
  const auto begins_again = [&] {
    SavingRun run(folder / "ck");
    run.checkpoints->identity().begin(/*has_callbacks=*/true);
    const bool again = run.checkpoints->identity().begins_again();
    run.checkpoints->end_run(/*well=*/true);
    return again;
  };
  SavingRun(folder / "ck").checkpoints->identity().begin(/*has_callbacks=*/true);
  CHECK(begins_again());
  CHECK_FALSE(begins_again());
  {
    SavingRun refused(folder / "ck");
    refused.checkpoints->identity().begin(/*has_callbacks=*/true);
    refused.checkpoints->identity().refuse();
  }
  CHECK_FALSE(begins_again());
  {
    SavingRun saved(folder / "ck");
    saved.checkpoints->identity().begin(/*has_callbacks=*/true);
    saved.checkpoints->begin_fit(0);
    saved.end_epoch();
    saved.checkpoints->finish();
    saved.checkpoints->end_run(/*well=*/false);
  }
  CHECK_FALSE(begins_again());
}

TEST_CASE("Where a plug-in or the trainer writes, no other plug-in may") {
  const Folder folder;
  SavingRun run(folder / "ck");
  const int one = 1, other = 2;
  const std::string id =
      run.checkpoints->identity().claim(&one, "A: folder: ", folder / "own", "ep{epoch}", /*whole=*/true);
  CHECK(id == run.checkpoints->identity().claim(&one, "A: folder: ", folder / "own", "ep{epoch}", /*whole=*/true));
  CHECK(id != run.checkpoints->identity().claim(&other, "B: folder: ", folder / "own", "ba{batch}", /*whole=*/true));
  CHECK_THROWS_WITH_AS(run.checkpoints->identity().claim(&other, "B: folder: ", folder / "own", "ep{epoch}", true),
                       doctest::Contains("is where another one writes"), ConfigError);
  CHECK_THROWS_WITH_AS(run.checkpoints->identity().claim(&other, "B: folder: ", folder / "ck", "other", true),
                       doctest::Contains("is the trainer's save_folder"), ConfigError);
}

TEST_CASE("A run is known by its name and its folder, and is nobody's to go on with if it never resumes") {
  const Folder folder;
  SavingRun run(folder / "ck");
  const std::string text = run.checkpoints->identity().text();
  CHECK(text.ends_with((folder / "ck").string()));
  run.options.save_folder += "/";
  CHECK(run.checkpoints->identity().text() == text);
  run.options.run_name = "another";
  CHECK(run.checkpoints->identity().text() != text);
  run.options.autoresume = false;
  CHECK_FALSE(run.checkpoints->identity().is_resumable());
  CHECK(run.checkpoints->identity().text().empty());
}

}  // namespace
}  // namespace composer::test::run_identity_test
