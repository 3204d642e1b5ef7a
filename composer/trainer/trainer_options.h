// Describes each option of a trainer: its values, whether ranks compare it, and what hyperparameters say of it. A new
// field of TrainerOptions is declared in trainer.h, and has its line in trainer_options.cpp. Internal.
#pragma once
#include <string>
#include <vector>

#include "composer/core/option.h"
#include "composer/trainer/trainer.h"

namespace composer {

class Feed;
namespace saving {
struct RunSaverOptions;
}

// The values that a run has derived from the options of its trainer.
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

// Whether a run that has a save_folder is resumed from the checkpoints there, when its program is started again.
bool resumes(const TrainerOptions& options);

// A save_folder with the run's name filled in: `given` may be a URI, `local` is the folder on this machine.
struct SaveFolder {
  std::string given, local;
  bool is_remote() const { return local != given; }
};
SaveFolder save_folder_of(const TrainerOptions& options, const std::string& run_name);

// The options that begin with save_, for all classes that save.
saving::RunSaverOptions save_options_of(const TrainerOptions& options);

}  // namespace composer
