#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "composer/core/state_dict.h"
#include "composer/loggers/wandb_logger.h"
#include "tests/loggers/wandb_reader.h"
#include "tests/loggers/wandb_run.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/saved_by.h"
#include "tests/support/warnings.h"

namespace composer::loggers::wandb_resume_test {
namespace {

namespace fs = std::filesystem;
using test::WandBFile;
using Run = ScriptedWandBRun;
using Steps = std::vector<std::int64_t>;
using test::saved_by;

void load(Run& run, const StateDict& checkpoint) {
  run.state.resumes = true;
  run.init();
  StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
  run.wandb.visit_state(visit);
  run.fire(Event::AFTER_LOAD);
}

TEST_CASE("A resumed run continues the offline run of its checkpoint, without what followed") {
  const test::Folder folder;
  Run killed(folder.path());
  killed.fire(Event::FIT_START);
  killed.logger.log_metrics({{"a", 1.0}}, 1);
  killed.logger.log_metrics({{"a", 2.0}}, 2);
  const StateDict checkpoint = saved_by(killed.wandb);
  killed.logger.log_metrics({{"late", 2.0}}, 2);
  killed.logger.log_metrics({{"a", 3.0}}, 3);
  killed.close();  // with an error
  const std::string before = only_run(folder.path()).run().text(1);
  Run resumed(folder.path());
  load(resumed, checkpoint);
  resumed.logger.log_hyperparameters({{"resumed", true}});
  CHECK(only_run(folder.path()).exit_code() == 1);  // not changed before it trains
  resumed.fire(Event::FIT_START);
  resumed.logger.log_metrics({{"b", 2.0}}, 2);
  resumed.logger.log_metrics({{"a", 4.0}}, 4);
  resumed.fire(Event::FIT_END);
  CHECK(resumed.wandb.run_id() == before);
  resumed.close();
  const WandBFile file = only_run(folder.path());
  CHECK(file.steps("a") == Steps{1, 2, 4});
  CHECK(file.steps("b") == Steps{2});
  CHECK(file.steps("late").empty());
  CHECK(file.config["resumed"] == true);
  CHECK(file.exit_code() == 0);
}

TEST_CASE("A checkpoint has the row of its step, which is in the file, and a resumed run goes on with it") {
  const test::Folder folder;
  Run killed(folder.path());
  killed.fire(Event::FIT_START);
  killed.logger.log_metrics({{"a", 1.0}}, 1);
  killed.logger.log_metrics({{"a", 2.0}}, 2);
  const StateDict checkpoint = saved_by(killed.wandb);
  CHECK(only_run(folder.path()).steps("a") == Steps{1, 2});
  killed.fire(Event::FIT_END);
  const StateDict at_end = saved_by(killed.wandb);
  killed.close();
  for (const StateDict& saved : {at_end, checkpoint}) {
    Run resumed(folder.path());
    load(resumed, saved);
    resumed.fire(Event::FIT_START);
    resumed.logger.log_metrics({{"b", 2.0}}, 2);
    resumed.logger.log_metrics({{"a", 3.0}}, 3);
    resumed.close();
    const WandBFile file = only_run(folder.path());
    CHECK(file.steps("a") == Steps{1, 2, 3});
    CHECK(file.steps("b") == Steps{2});
  }
}

TEST_CASE("A resumed run whose offline run is missing or was replaced begins another, and says so") {
  for (const bool replaced : {true, false}) {
    const test::Folder folder;
    Run killed(folder.path());
    killed.logger.log_metrics({{"a", 1.0}}, 1);
    killed.wandb.flush();
    const StateDict checkpoint = saved_by(killed.wandb);
    killed.close();
    const fs::path old = test::wandb_runs(folder.path())[0];
    if (replaced)
      std::ofstream(test::wandb_file_in(old)) << std::string(10'000, 'x');
    else
      fs::remove_all(old);
    const test::Warnings warnings;
    Run resumed(folder.path());
    load(resumed, checkpoint);
    resumed.fire(Event::FIT_START);
    resumed.logger.log_metrics({{"a", 2.0}}, 2);
    const fs::path made = resumed.wandb.run_folder();
    resumed.close();
    CHECK(made != old);
    CHECK(test::read_wandb_file(test::wandb_file_in(made)).steps("a") == Steps{2});
    CHECK(warnings.say("a new run is begun"));
    if (replaced) CHECK(test::content_of(test::wandb_file_in(old)) == std::string(10'000, 'x'));
  }
}

TEST_CASE("WandBLogger does not change a file outside of its folder that a forged checkpoint names") {
  const test::Folder folder;
  Run killed(folder / "a");
  killed.logger.log_metrics({{"a", 1.0}}, 1);
  StateDict checkpoint = saved_by(killed.wandb);
  killed.logger.log_metrics({{"a", 2.0}}, 2);
  killed.close();
  const fs::path run = test::wandb_runs(folder / "a")[0];
  const auto size = fs::file_size(test::wandb_file_in(run));
  checkpoint["folder"] = "../../a/wandb/" + run.filename().string();
  const test::Warnings warnings;
  Run resumed(folder / "b");
  load(resumed, checkpoint);
  resumed.fire(Event::FIT_START);
  resumed.close();
  CHECK(fs::file_size(test::wandb_file_in(run)) == size);
  CHECK(warnings.say("a new run is begun"));
}

TEST_CASE("A rank does not continue the offline run of another rank, whose checkpoint it loads") {
  const test::Folder folder;
  const auto of_rank = [&](int rank) {
    auto run = std::make_unique<Run>(WandBLoggerOptions{.folder = folder.path(), .rank_zero_only = false});
    run->state.rank = rank;
    run->state.world_size = 2;
    return run;
  };
  const auto killed = of_rank(0);
  killed->init();
  StateDict checkpoint = saved_by(killed->wandb);
  killed->close();
  checkpoint["lost"] = std::int64_t{3};
  const test::Warnings warnings;
  const auto resumed = of_rank(1);
  load(*resumed, checkpoint);
  resumed->fire(Event::FIT_START);
  resumed->close();
  CHECK(test::wandb_runs(folder.path()).size() == 2);
  CHECK_FALSE(warnings.say("3 records"));  // which are missing in the other rank's
}

}  // namespace
}  // namespace composer::loggers::wandb_resume_test
