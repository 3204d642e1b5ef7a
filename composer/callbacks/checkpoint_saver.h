#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "composer/checkpoint/run_saver.h"
#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::callbacks {

using CheckpointSaverOptions = saving::RunSaverOptions;

// Writes checkpoints beside those of the trainer, into a folder of their own: the weights of each epoch, say, all of
// them kept. A run that goes on from the trainer's checkpoint goes on with these, and writes what was still on its way
// when it was killed. It does not go on from here by itself, that is what the trainer's save_folder is for; but
// load_path may name one of these. Throws ConfigError from the constructor for bad options, and at the start of a fit
// for a folder in which others have written what would be in the way.
class COMPOSER_EXPORT CheckpointSaver final : public Callback {
 public:
  explicit CheckpointSaver(CheckpointSaverOptions options = {});
  void init(const State& state, Logger& logger) override;
  void fit_start(const State& state, Logger& logger) override;
  void batch_checkpoint(const State& state, Logger& logger) override;
  void epoch_checkpoint(const State& state, Logger& logger) override;
  void iteration_checkpoint(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

  // The paths of those that this run has written and not deleted, oldest first; the last may be on its way.
  std::vector<std::string> saved_checkpoints() const;

 private:
  struct Memory {  // of an earlier process of this run
    std::string folder, run_id, newest;
    std::int64_t batch = -1;  // of the newest
    StateDict saver;
    void visit_state(StateVisitor& visit);
  };
  Memory memory() const;
  void open(const State& state);

  CheckpointSaverOptions options_;
  std::optional<saving::RunSaver> saver_;  // once a fit has begun
  Memory before_;
  bool resumes_ = false;
};

}  // namespace composer::callbacks
