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

// Which checkpoints of a run are written, and where: the options of CheckpointSaver, and those of a trainer that begin
// with save_.
struct RunSaverOptions {
  [[no_unique_address]] ByName by_name = {};
  std::string folder = "{run_name}/checkpoints";  // where checkpoints are written; placeholders are replaced
  std::string filename = "ep{epoch}-ba{batch}";   // name of a checkpoint, with placeholders
  std::string latest_filename = "latest";         // name of a link to the newest one; empty: no link
  Interval save_interval = "1ep";             // any unit, or a function of event and state; also at the end of training
  bool overwrite = false;                     // also replaces what other runs have written
  bool weights_only = false;                  // true: no state.safetensors
  std::int64_t num_checkpoints_to_keep = -1;  // number of this run's checkpoints; -1: all, 0: none is written
  std::optional<Best> best = {};              // keeps the best by this metric, and the newest in addition
  OnFailure on_failure = OnFailure::FAIL;     // what to do if a checkpoint cannot be written: FAIL, RETRY or CONTINUE
  bool async = true;                          // writes on a background thread
  std::vector<std::string> ignore_keys = {};  // globs of keys that are not saved
};

// What a trainer or a plug-in adds to the options.
struct SaverContext {
  OptionNames names = {};  // names of options in errors and warnings
  bool goes_back = false;  // the run may resume from an older checkpoint: later ones are deleted when the fit begins
  std::shared_ptr<Mirror> mirror = {};
  std::string program = {};  // see Manifest::program
  bool resumes = true;       // false: other checkpoints of a run with this name are not its own
};

// Throws ConfigError for options that are invalid for every run.
COMPOSER_EXPORT void check(const RunSaverOptions& options, OptionNames names = {});
// Called at the start of a fit. Throws ConfigError, beginning with `who`, if no loader of the fit has the label of the
// metric, or that loader has no such metric. With `settable` it warns instead, because values may be set under other
// labels.
COMPOSER_EXPORT void check_best(std::string_view who, const Best& best, const FitOutline& fit, const State& state,
                                bool settable);

// Saves a run when a checkpoint is due. The trainer has one for its save_folder, and each CheckpointSaver has one.
// Requires state.run.
class COMPOSER_EXPORT RunSaver {
 public:
  // Does not write. A relative folder is resolved in the present working directory.
  RunSaver(RunSaverOptions options, SaverContext context, const State& state, const ResumePoint& from = {});
  ~RunSaver();

  // Called before the first batch of the program's fit `number`: locks the folder for the run, then calls prepare().
  // Throws ConfigError if another process trains the run. Throws CheckpointError if the run has been continued
  // elsewhere, that is, if its newest checkpoint in the folder is neither the one that it resumes from nor one written
  // by this saver.
  void begin_fit(const State& state, std::int64_t number);
  void end_fit();  // unlocks the folder
  // Checks for anything that would prevent a later checkpoint from being written. Throws ConfigError for conflicting
  // checkpoints of other runs, and for names and tensors that cannot be saved. If the folder cannot be written, throws
  // CheckpointError, or warns under OnFailure::CONTINUE. Then deletes the checkpoints that a killed process has left to
  // delete.
  void prepare(const State& state);
  void count_from_zero();  // call when time is reset

  bool is_due(Event event, const State& state);  // at a *_CHECKPOINT event
  bool is_due_at_end(const State& state);        // at the end of a fit: false if that batch was saved or saving is off
  bool is_saved(const State& state) const;       // whether the current batch is saved, or need not be
  std::string open_parts(int ranks);  // like Saver::open_parts(): for a checkpoint of which other ranks write parts
  void save(const State& state);      // writes a periodic checkpoint
  std::string periodic_name(const State& state) const;  // the name of a periodic checkpoint written now
  // Writes a checkpoint, and returns its name. Placeholders in `name` are replaced. If the run has a checkpoint with
  // this name and other weights, "-2" and so on is appended.
  std::string write(const std::string& name, const State& state, bool by_hand);
  void wait();    // returns when everything is on disk
  void finish();  // calls wait(), then writes values measured since into the manifests of checkpoints
  // Returns when the mirror has copied everything, or when the grace period after a signal ends. Throws CheckpointError
  // for checkpoints that are not copied, unless on_failure is CONTINUE; an interrupted run warns instead.
  void wait_for_mirror(const State& state);

  // For a run that is resumed or begins again: adds checkpoints that an earlier process of the run has written after
  // the one it resumes from. `weights`: version of the weights that were loaded.
  void adopt_unlisted(const State& state, std::uint64_t weights);
  // Called at the end of a fit, after FIT_END. Warns if the weights differ from those of the last checkpoint.
  void warn_if_changed(const State& state) const;
  // Like MeasuredValues::warn_without_best(), for the checkpoints of this process.
  void warn_without_best(const State& state) const;
  std::vector<std::string> paths() const;  // in the order of writing; the last may still be being written
  std::optional<std::string> best_path(const State& state);  // by the metric of `best`; nullopt: none has a value

  const SaverOptions& options() const;
  const SavedList& list() const;
  CheckpointWriter& writer();
  RunFolder& folder() { return *folder_; }
  SaveSchedule& schedule() { return *schedule_; }
  MeasuredValues& measured() { return *measured_; }

  // Saves the list of its checkpoints and the batch of its newest periodic checkpoint. `weights`: the version of the
  // weights that are saved with it, as in state.run->weights_version(); after a resume, of the weights that were
  // loaded.
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
  std::string begins_again_;  // ResumePoint::begins_again, until a fit has begun
  bool has_saved_ = false;    // this process has saved
};

}  // namespace composer::saving
