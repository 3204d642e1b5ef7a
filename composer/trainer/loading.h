#pragma once
#include <vector>

#include "composer/core/run.h"
#include "composer/formats/renaming.h"
#include "composer/trainer/run_state.h"

namespace composer {

struct TrainerOptions;

// Loads what a trainer begins with, and what plug-ins name.
struct RunLoader {
  // The run that goes on, else the load_path, if there is one.
  void load_first() const;
  // Throws CheckpointError, before anything is changed, if the weights do not fit.
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
