// When a run's checkpoints are written and what is noted of them, without a trainer.
#include "composer/trainer/checkpoints.h"

#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/ones.h>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/run.h"
#include "composer/step/train_step.h"
#include "composer/trainer/progress.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/replicas.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::checkpoints_test {
namespace {

namespace fs = std::filesystem;

// Has one weight, and is at the moment of its state.
class OneWeight final : public Run {
 public:
  explicit OneWeight(const State& state) : state_(state) {}
  StateDict snapshot(bool) const override {
    StateDict all, weights;
    weights["weight"] = at::ones({2});
    all["model"] = std::move(weights);
    return all;
  }
  IntervalMoment moment(Event event) const override {
    return Progress{.now = state_.timestamp, .previous = state_.previous_timestamp}.moment_of(event, std::nullopt);
  }
  bool interrupted() const override { return false; }
  std::optional<Seconds> time_left() const override { return std::nullopt; }
  void load(const LoadOptions&) override {}

 private:
  const State& state_;
};

// What a trainer gives them.
struct Saving {
  explicit Saving(const fs::path& folder) {
    options.save_folder = folder;
    state.run_name = "tiny";
    state.model = options.model;
    state.run = std::shared_ptr<Run>(std::make_shared<OneWeight>(state));
    checkpoints =
        std::make_unique<Checkpoints>(options, ranks, state, replicas, saving::ResumePoint{}, SavingTogether::Shares{});
  }
  void end_epoch() {
    state.previous_timestamp = state.timestamp;
    state.timestamp = state.timestamp.to_next_batch(4, 0, Seconds(1)).to_next_epoch();
    checkpoints->save_if_due(Event::EPOCH_CHECKPOINT);
  }

  TrainerOptions options = tiny_options();
  Ranks ranks{nullptr, {}};
  State state;
  Logger logger{state, {}};
  TrainStep step{state, logger, /*weigh_by_tokens=*/false};
  ReplicaCheck replicas{ranks, state, step};
  std::unique_ptr<Checkpoints> checkpoints;
};

TEST_CASE("Without a save_folder nothing is saved, noted or told") {
  Saving run("");
  const Warnings warnings;
  Checkpoints& none = *run.checkpoints;
  none.begin_run(/*has_callbacks=*/true);
  none.begin_fit(0);
  none.note_step();
  none.note_trained();
  run.end_epoch();
  none.note_evaluation();
  none.save_last();
  none.tell_changed();
  none.finish();
  none.wait_for_mirror();
  none.end_fit();
  none.end_run(/*well=*/true);
  CHECK_FALSE(none.is_resumable());
  CHECK_FALSE(none.begins_again());
  CHECK_FALSE(none.have_batch());
  CHECK(none.identity().empty());
  CHECK(none.paths().empty());
  CHECK(none.best() == std::nullopt);
  CHECK(warnings.texts.empty());
  none.tell_interrupted(SIGTERM);
  CHECK(warnings.say("interrupted (SIGTERM) after batch 1; nothing is saved, because there is no save_folder"));
}

TEST_CASE("What is due is saved once, and the end of a fit saves what is not saved yet") {
  const Folder folder;
  Saving run(folder / "ck");
  run.checkpoints->begin_fit(0);
  run.end_epoch();
  CHECK(run.checkpoints->have_batch());
  run.checkpoints->save_last();
  CHECK(run.checkpoints->paths().size() == 1);
  run.state.previous_timestamp = run.state.timestamp;
  run.state.timestamp = run.state.timestamp.to_next_batch(4, 0, Seconds(1));
  CHECK_FALSE(run.checkpoints->have_batch());
  run.checkpoints->save_if_due(Event::BATCH_CHECKPOINT);
  CHECK(run.checkpoints->paths().size() == 1);
  run.checkpoints->save_last();
  run.checkpoints->finish();
  CHECK(run.checkpoints->paths() == std::vector<std::string>{folder / "ck/ep1-ba1", folder / "ck/ep1-ba2"});
  for (const std::string& path : run.checkpoints->paths()) CHECK(fs::exists(path));
}

TEST_CASE("A run is begun again unless it was refused, has ended well, or has a checkpoint") {
  const Folder folder;
  const auto begins_again = [&] {
    Saving run(folder / "ck");
    run.checkpoints->begin_run(/*has_callbacks=*/true);
    const bool again = run.checkpoints->begins_again();
    run.checkpoints->end_run(/*well=*/true);
    return again;
  };
  Saving(folder / "ck").checkpoints->begin_run(/*has_callbacks=*/true);
  CHECK(begins_again());
  CHECK_FALSE(begins_again());
  {
    Saving refused(folder / "ck");
    refused.checkpoints->begin_run(/*has_callbacks=*/true);
    refused.checkpoints->refuse_run();
  }
  CHECK_FALSE(begins_again());
  {
    Saving saved(folder / "ck");
    saved.checkpoints->begin_run(/*has_callbacks=*/true);
    saved.checkpoints->begin_fit(0);
    saved.end_epoch();
    saved.checkpoints->finish();
    saved.checkpoints->end_run(/*well=*/false);
  }
  CHECK_FALSE(begins_again());
}

TEST_CASE("Where a plug-in or the trainer writes, no other plug-in may") {
  const Folder folder;
  Saving run(folder / "ck");
  const int one = 1, other = 2;
  const std::string id = run.checkpoints->claim(&one, "A: folder: ", folder / "own", "ep{epoch}", /*whole=*/true);
  CHECK(id == run.checkpoints->claim(&one, "A: folder: ", folder / "own", "ep{epoch}", /*whole=*/true));
  CHECK(id != run.checkpoints->claim(&other, "B: folder: ", folder / "own", "ba{batch}", /*whole=*/true));
  CHECK_THROWS_WITH_AS(run.checkpoints->claim(&other, "B: folder: ", folder / "own", "ep{epoch}", true),
                       doctest::Contains("is where another one writes"), ConfigError);
  CHECK_THROWS_WITH_AS(run.checkpoints->claim(&other, "B: folder: ", folder / "ck", "other", true),
                       doctest::Contains("is the trainer's save_folder"), ConfigError);
}

}  // namespace
}  // namespace composer::test::checkpoints_test
