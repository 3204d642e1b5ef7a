#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
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
struct SaverOwner {
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
  RunSaver(RunSaverOptions options, SaverOwner owner, const State& state, const ResumePoint& from = {});
  ~RunSaver();
  RunSaver(RunSaver&&) noexcept;
  RunSaver& operator=(RunSaver&&) noexcept;

  // Before the first batch of that fit of the program: locks the folder for the run, then prepare(). ConfigError if
  // another process trains it; CheckpointError if the run has been continued elsewhere: its newest checkpoint in the
  // folder is neither the one that it resumes from nor one of this saver's.
  void begin_fit(const State& state, std::int64_t number);
  void end_fit();  // unlocks the folder
  bool in_fit() const { return in_fit_; }
  std::int64_t fit() const { return fit_.value_or(0); }  // the one that was begun last
  void count_from_zero();                                // time is reset
  // Checks what would prevent a later checkpoint from being written. Throws ConfigError for conflicting checkpoints of
  // other runs, and for names and tensors that cannot be saved; CheckpointError for a folder that cannot be written, or
  // warns under OnFailure::CONTINUE. Then deletes checkpoints that a killed process should have deleted.
  void prepare(const State& state);
  void save_if_due(Event event, const State& state);  // at a *_CHECKPOINT event
  void save_last(const State& state);  // at the end of a fit: saves unless that batch was saved or saving is off
  // The same in two steps: save_periodic() if one of the others is true.
  bool is_due(Event event, const State& state);
  bool is_due_last(const State& state);
  void save_periodic(const State& state) { save(options_.filename, state); }
  std::string open_parts(int ranks);  // as Saver has it: for a checkpoint of which other ranks write parts
  // Writes a periodic checkpoint. Placeholders in the name are replaced. It gets a "-2" and so on behind its name if
  // the run has one of this name with other weights.
  void save(const std::string& name, const State& state);
  // Before and after save_by_hand(): where no fit has the folder's lock, this has it.
  void lock_by_hand();
  void unlock_by_hand();
  // Writes a checkpoint of this name: it is neither counted for
  // num_checkpoints_to_keep nor deleted, and the periodic one of this batch is still written. Returns its path once it
  // is on disk. Throws CheckpointError if it could not be written, with any on_failure.
  std::string save_by_hand(const std::string& name, const State& state);
  // Of a run that goes on and repeats what its program did before: the path of the checkpoint of this name that it has;
  // empty: there is none.
  std::string made_before(const std::string& name, const State& state) const;
  // A call is answered with this one: warns if it is damaged.
  void check_answer(const std::string& path);
  void check_name_by_hand(const std::string& name, const State& state) const;  // throws ConfigError
  void wait();                                                                 // returns when everything is on disk
  // Of a run that goes on or begins again: counts what an earlier process of it has written later than what it goes on
  // from. `weights`: those that were loaded.
  void adopt_left(const State& state, std::uint64_t weights);
  // The run goes on and has these weights: if others were loaded, those of now are the program's, and it is not due to
  // save them before it trains.
  void note_begun(const State& state, std::uint64_t loaded);
  void note_finish();  // the newest checkpoint says that the run is over for good
  // As MeasuredValues has them.
  void note_metrics(const State& state);
  void note_evaluation(const State& state);
  void note_step(const State& state);
  void note_trained(const State& state);
  void prefer(Better better);
  void tell_without_best(const State& state) const;
  // At the end of a fit, after FIT_END: warns if the weights are no longer those of the last checkpoint.
  void tell_changed(const State& state) const;
  bool has_notes() const;
  void finish();  // wait(), then writes what was noted into the checkpoints' manifests
  // Returns when the mirror has copied everything, or when the grace period after a signal ends. Throws
  // CheckpointError for what is not copied, unless on_failure is CONTINUE; a run that was interrupted warns.
  void wait_for_mirror(const State& state);
  std::vector<std::string> paths() const;  // as they were written; the last may still be being written
  std::optional<std::string> best_path(const State& state);  // by the metric of `best`; nullopt: none has a value
  const SaverOptions& options() const;
  CheckpointWriter& writer();

  std::string newest() const;               // the name of the newest periodic or other checkpoint; empty: none
  std::int64_t last_saved_batch() const;    // -1: none
  bool is_saved(const State& state) const;  // whether the current batch is saved, or need not be

  // The list of its checkpoints, with the weights that are saved beside it, as state.run->weights_version(); for a run
  // that goes on from there, with those that were loaded, and the batch of its newest periodic checkpoint.
  void save_state(StateDict& into, std::uint64_t weights) const;
  void load_state(const StateDict& saved, std::int64_t last_batch, const Timestamp& now, std::uint64_t weights);

 private:
  void check_by_hand(const std::string& name, const State& state) const;
  std::string take(const std::string& name, Manifest manifest, const State& state, bool by_hand);
  void check();
  Manifest manifest(const std::string& name, const State& state) const;

  RunSaverOptions options_;
  SaverOwner owner_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<MeasuredValues> values_;
  std::unique_ptr<SaveSchedule> schedule_;
  std::string begins_again_;  // of ResumePoint, until a fit has begun
  bool in_fit_ = false;
  bool has_saved_ = false;  // in this process
  bool locked_by_hand_ = false;
  std::set<std::string> checked_;    // paths of what calls were answered with
  std::optional<std::int64_t> fit_;  // the number of the one that was begun last
};

}  // namespace composer::saving
