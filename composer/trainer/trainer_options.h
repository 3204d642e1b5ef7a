// Describes each option of a trainer: its values, whether ranks compare it, and what hyperparameters say of it. A new
// field of TrainerOptions is declared in trainer.h, and has its line in trainer_options.cpp. Internal.
#pragma once
#include <vector>

#include "composer/core/option.h"
#include "composer/trainer/trainer.h"

namespace composer {

class Feed;
namespace saving {
struct RunSaverOptions;
}

// What a run has made of the options of its trainer.
struct InRun {
  const State& state;
  const Feed& train;                   // may be empty
  const std::vector<double>& made_lr;  // of each parameter group, before any schedule
};

template <>
struct RunOf<TrainerOptions> {
  using Type = InRun;
};

const std::vector<Option<TrainerOptions>>& trainer_options();

// Those that begin with save_, as all who save have them.
saving::RunSaverOptions save_options_of(const TrainerOptions& options);

}  // namespace composer
