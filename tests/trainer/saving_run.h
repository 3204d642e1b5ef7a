#pragma once
// The checkpoints of a run without a trainer.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include <ATen/ops/ones.h>

#include "composer/core/logger.h"
#include "composer/core/run.h"
#include "composer/step/train_step.h"
#include "composer/trainer/checkpoints.h"
#include "composer/trainer/progress.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/replicas.h"
#include "tests/support/tiny.h"

namespace composer::test {

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
struct SavingRun {
  explicit SavingRun(const std::filesystem::path& folder) {
    options.save_folder = folder;
    state.run_name = "tiny";
    state.model = options.model;
    state.run = std::shared_ptr<Run>(std::make_shared<OneWeight>(state));
    checkpoints = std::make_unique<Checkpoints>(options, ranks, state, replicas, saving::ResumePoint{},
                                                CollectiveSaving::Shares{});
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

}  // namespace composer::test
