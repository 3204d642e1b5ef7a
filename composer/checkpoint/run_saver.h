#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/checkpoint/save_options.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/event.h"
#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/state_dict.h"

namespace composer {
struct State;
}  // namespace composer

namespace composer::saving {

// Which checkpoints of a run are written where; TrainerOptions has the same under longer names.
struct RunSaverOptions {
  std::string folder = "{run_name}/checkpoints";
  std::string filename = "ep{epoch}-ba{batch}";
  std::string latest_filename = "latest";
  Interval save_interval = "1ep";
  bool overwrite = false;
  bool weights_only = false;
  std::int64_t num_checkpoints_to_keep = -1;
  std::optional<Best> best = {};
  OnFailure on_failure = OnFailure::FAIL;
  bool async = true;
  std::vector<std::string> ignore_keys = {};
};

// Throws ConfigError for what can be told without a run.
COMPOSER_EXPORT void check(const RunSaverOptions& options);

// Saves a run when it is due. A trainer has one for its save_folder, each CheckpointSaver another. To be used while
// state.run is there.
class COMPOSER_EXPORT RunSaver {
 public:
  // Goes on from `resumed`, if that is given. Nothing is written yet.
  RunSaver(RunSaverOptions options, const State& state, const Manifest* resumed = nullptr);

  // What others have written beyond where this run is would be in its way sooner or later: ConfigError.
  void check_conflicts(const State& state) const;
  void save_if_due(Event event, const State& state);  // at a *_CHECKPOINT event
  void save_last(const State& state);  // the fit is over: saves its last batch, unless that was done or none is wanted
  // Now, under this name (its placeholders are replaced), and returns its path when it is on the disk. It is none of
  // those that are due, listed and deleted.
  std::string save_by_hand(const std::string& name, const State& state);
  void save(const std::string& name, const State& state);  // its placeholders are replaced
  void wait();                                             // until everything is on the disk
  std::vector<std::string> paths() const;                  // oldest first; the last may be on its way
  const SaverOptions& options() const { return saver_->options(); }

  std::string newest() const;  // its name; empty: none
  std::int64_t last_saved_batch() const { return last_saved_batch_; }

  // What it has written, for those who go on from it at a checkpoint of that batch.
  void save_state(StateDict& into) const;
  void load_state(const StateDict& saved, std::int64_t batch);

 private:
  void warn_if_late(const State& state) const;
  void check();
  void write(Manifest manifest, const State& state);
  Manifest manifest(const std::string& name, const State& state) const;

  RunSaverOptions options_;
  std::unique_ptr<Saver> saver_;
  std::int64_t last_saved_batch_ = -1;
};

}  // namespace composer::saving
