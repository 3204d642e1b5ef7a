#pragma once
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "composer/checkpoint/run_saver.h"
#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/error_watcher.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer {
class Run;
}

namespace composer::callbacks {

using CheckpointSaverOptions = saving::RunSaverOptions;

// Writes additional checkpoints into a folder of their own, for example the weights of every epoch. A run resumed from
// the trainer's checkpoint, or begun again, continues to count and delete them, and writes one that was still in flight
// when the process was killed. Runs resume only from the trainer's save_folder; load_path may name one of these
// checkpoints. Throws ConfigError from the constructor for invalid options, and at the start of a fit if files of other
// runs prevent a later checkpoint from being written.
class COMPOSER_EXPORT CheckpointSaver final : public Callback, public ErrorWatcher {
 public:
  explicit CheckpointSaver(CheckpointSaverOptions options = {});
  explicit CheckpointSaver(EmptyOptions) : CheckpointSaver() {}
  StateDict local_hparams() const override;
  void init(const State& state, Logger& logger) override;
  void after_load(const State& state, Logger& logger) override;
  void fit_start(const State& state, Logger& logger) override;
  void batch_start(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void batch_checkpoint(const State& state, Logger& logger) override;
  void epoch_checkpoint(const State& state, Logger& logger) override;
  void iteration_checkpoint(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void eval_end(const State& state, Logger& logger) override;
  void eval_after_all(const State& state, Logger& logger) override;
  void eval_standalone_start(const State& state, Logger& logger) override;
  void eval_standalone_end(const State& state, Logger& logger) override;
  void predict_start(const State& state, Logger& logger) override;
  void predict_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;
  void check_fit(const FitOutline& fit, const State& state) const override;
  void run_fails(const std::exception_ptr& error, const State& state, Logger& logger) override;

  // Paths of the checkpoints that this run has written and not deleted, in the order of writing; the last may still be
  // being written. On rank 0 only; other ranks write none.
  std::vector<std::string> saved_checkpoints() const;

 private:
  struct Memory {  // state of an earlier process of this run
    std::string folder, run_id, newest;
    std::int64_t batch = -1;  // batch of the newest checkpoint
    StateDict saver;
    void visit_state(StateVisitor& visit);
  };
  Memory memory() const;
  void open(const State& state);
  void save_if_due(Event event, const State& state);
  void write_measured();

  CheckpointSaverOptions options_;
  std::unique_ptr<saving::RunSaver> saver_;  // null until a fit has begun
  const Run* run_ = nullptr;                 // the trainer's, which outlives the saver; null until a fit has begun
  std::string folder_;                       // as in the options
  std::string absolute_folder_;              // from INIT on, with placeholders replaced
  Memory before_;
  // Version of the weights of the trainer's checkpoint, as in state.run->weights_version().
  std::uint64_t loaded_weights_ = 0;
  bool in_call_ = false;  // during eval() or predict()
};

}  // namespace composer::callbacks
