#pragma once
#include <vector>

#include "composer/core/run.h"
#include "composer/formats/renaming.h"
#include "composer/trainer/run_state.h"

namespace composer {

struct TrainerOptions;

// Loads the checkpoint or weights that a trainer begins with, and those that plug-ins name.
struct RunLoader {
  // Loads the checkpoint of the run to resume; otherwise load_path, if it is set.
  void load_first() const;
  // Throws CheckpointError, before anything is changed, if the weights do not fit the model.
  void load(const LoadOptions& from, const std::vector<Rename>& rename = {}) const;

  const TrainerOptions& options;
  const Ranks& ranks;
  State& state;
  const Engine& engine;
  WeightsInUse& weights_in_use;
  Resumption& resumption;
  RunState run_state;
};

}  // namespace composer
