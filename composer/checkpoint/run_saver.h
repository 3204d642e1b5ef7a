#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/checkpoint/manifest.h"
#include "composer/checkpoint/resume_point.h"
#include "composer/checkpoint/save_options.h"
#include "composer/core/by_name.h"
#include "composer/core/event.h"
#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/state_dict.h"
#include "composer/core/time.h"

namespace composer {
struct FitOutline;
struct State;
}  // namespace composer

namespace composer::saving {

class CheckpointWriter;
class MeasuredValues;
class RunFolder;
class SaveSchedule;
class SavedList;
class Saver;

// Which checkpoints of a run are written, and where, as users choose it: the options of CheckpointSaver, and those of a
// trainer that begin with save_.
struct RunSaverOptions {
  [[no_unique_address]] ByName by_name = {};
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

// What a trainer or a plug-in adds to these.
struct SaverContext {
  OptionNames names = {};  // what errors and warnings call the options
  bool goes_back = false;  // a run may resume from an older checkpoint: later ones are deleted when the fit begins
  std::shared_ptr<Mirror> mirror = {};
  std::string program = {};  // of Manifest
  bool resumes = true;       // else other checkpoints of a run of this name are not its own
};

// Throws ConfigError for options that are invalid for every run.
COMPOSER_EXPORT void check(const RunSaverOptions& options, OptionNames names = {});
// At the start of a fit. Throws ConfigError that begins with `who` if no loader of the fit has the label of the metric,
// or has no such metric. `settable`: somebody may set values under a label of their own, so that it is a warning.
COMPOSER_EXPORT void check_best(std::string_view who, const Best& best, const FitOutline& fit, const State& state,
                                bool settable);

// Saves a run when due. The trainer has one for its save_folder, and each CheckpointSaver has one. Requires state.run.
class COMPOSER_EXPORT RunSaver {
 public:
  // Does not write. A relative folder is one of the present working directory.
  RunSaver(RunSaverOptions options, SaverContext context, const State& state, const ResumePoint& from = {});
  ~RunSaver();

  // Before the first batch of that fit of the program: locks the folder for the run, then prepare(). ConfigError if
  // another process trains it; CheckpointError if the run has been continued elsewhere: its newest checkpoint in the
  // folder is neither the one that it resumes from nor one of this saver's.
  void begin_fit(const State& state, std::int64_t number);
  void end_fit();  // unlocks the folder
  // Checks what would prevent a later checkpoint from being written. Throws ConfigError for conflicting checkpoints of
  // other runs, and for names and tensors that cannot be saved; CheckpointError for a folder that cannot be written, or
  // warns under OnFailure::CONTINUE. Then deletes checkpoints that a killed process should have deleted.
  void prepare(const State& state);
  void count_from_zero();  // time is reset

  bool is_due(Event event, const State& state);  // at a *_CHECKPOINT event
  bool is_due_at_end(const State& state);        // of a fit: unless that batch was saved or saving is off
  bool is_saved(const State& state) const;       // whether the current batch is saved, or need not be
  std::string open_parts(int ranks);             // as Saver has it: for a checkpoint of which other ranks write parts
  void save(const State& state);                 // writes a periodic checkpoint
  std::string periodic_name(const State& state) const;  // which that would have now
  // Writes a checkpoint, and returns its name. Placeholders in the given one are replaced, and it gets a "-2" and so on
  // behind it if the run has one of this name with other weights.
  std::string write(const std::string& name, const State& state, bool by_hand);
  void wait();    // returns when everything is on disk
  void finish();  // wait(), then writes what was measured since into the checkpoints' manifests
  // Returns when the mirror has copied everything, or when the grace period after a signal ends. Throws
  // CheckpointError for what is not copied, unless on_failure is CONTINUE; a run that was interrupted warns.
  void wait_for_mirror(const State& state);

  // Of a run that goes on or begins again: counts what an earlier process of it has written later than what it goes on
  // from. `weights`: those that were loaded.
  void adopt_unlisted(const State& state, std::uint64_t weights);
  // At the end of a fit, after FIT_END: warns if the weights are no longer those of the last checkpoint.
  void warn_if_changed(const State& state) const;
  void warn_without_best(const State& state) const;  // as MeasuredValues, of what this process has saved
  std::vector<std::string> paths() const;            // as they were written; the last may still be being written
  std::optional<std::string> best_path(const State& state);  // by the metric of `best`; nullopt: none has a value

  const SaverOptions& options() const;
  const SavedList& list() const;
  CheckpointWriter& writer();
  RunFolder& folder() { return *folder_; }
  SaveSchedule& schedule() { return *schedule_; }
  MeasuredValues& measured() { return *measured_; }

  // The list of its checkpoints, with the weights that are saved beside it, as state.run->weights_version(); for a run
  // that goes on from there, with those that were loaded, and the batch of its newest periodic checkpoint.
  void save_state(StateDict& into, std::uint64_t weights) const;
  void load_state(const StateDict& saved, std::int64_t last_batch, const Timestamp& now, std::uint64_t weights);

 private:
  void rethrow_error();

  RunSaverOptions options_;
  SaverContext context_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<SaveSchedule> schedule_;
  std::unique_ptr<MeasuredValues> measured_;
  std::string begins_again_;  // of ResumePoint, until a fit has begun
  bool has_saved_ = false;    // in this process
};

}  // namespace composer::saving
