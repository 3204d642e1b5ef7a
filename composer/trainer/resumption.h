#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "composer/checkpoint/moment.h"
#include "composer/checkpoint/resume_point.h"
#include "composer/core/state_dict.h"
#include "composer/core/stop.h"
#include "composer/core/time.h"

namespace torch::nn {
class Module;
}

namespace composer {

struct Progress;
struct State;
struct TrainerOptions;
class Evaluations;
class OwnRandom;
class Ranks;
class SchedulePlan;
class TrainStep;

// Runs `load` and adds the file's name to its errors.
void name_file_in_errors(const std::string& from, const std::function<void()>& load);

// The group of this name; null if there is none. Throws CheckpointError if the name is that of a single value.
const StateDict* group_in(const StateDict& saved, const char* name);

// The saved values of a checkpoint that are not restored yet. A checkpoint that is written meanwhile contains these
// values instead of the current ones, so that nothing is lost by a save between two starts.
class UnrestoredState {
 public:
  void keep(const StateDict& saved, const char* name) {
    if (const StateValue* const value = saved.find(name)) values_[name] = *value;
  }
  void keep(const char* name, StateValue value) { values_[name] = std::move(value); }
  void drop(std::initializer_list<const char*> names) {
    for (const char* name : names) values_.erase(name);
  }
  const StateValue* find(const char* name) const { return values_.find(name); }
  StateVisitor visitor() const { return StateVisitor::loading(values_, ""); }
  void put_into(StateDict& saved) const {
    for (const auto& [name, value] : values_.entries()) saved[name] = value;
  }

 private:
  StateDict values_;
};

// The checkpoint from which this run resumes, if there is one, and the other contents of its save_folder. Only rank 0
// reads the folder.
saving::ResumePoint checkpoint_to_resume(const TrainerOptions& options, const Ranks& ranks);
// The ids of a folder's checkpoints; unset if it cannot be read.
std::optional<std::set<std::string>> ids_in(const std::string& folder);
// `folder` is the save_folder of a trainer without the option run_name, whose run has a name by now. If it is not the
// folder that was searched for a checkpoint, its contents are added to `chosen`.
void look_into_named(const std::string& folder, const TrainerOptions& options, saving::ResumePoint& chosen);

// The result of loading a checkpoint. `found`, the checkpoint of this run to resume from, is set until the first fit
// has begun.
struct Resumption : saving::ResumePoint {
  std::string loaded_from;  // path of the last checkpoint or file that was loaded; empty: none
  // The version of the weights that were loaded last with a whole state. What the checkpoint says about its weights
  // holds for this version only.
  std::uint64_t weights = 0;
  std::optional<saving::Moment> resumed_at;  // where the fit that was under way has been resumed in this process
  // Batches in the epoch in which the run was saved, of a loader that knows only their number.
  std::optional<std::int64_t> epoch_batches;
  StateDict hyperparameters_before;  // from the checkpoint that is resumed
  // "rng" waits until training begins, because hooks may draw random numbers before. "scaler" waits until a fit scales
  // losses. From a checkpoint of this run, these wait until the first fit has begun: "settings" of the model;
  // "schedulers" and "evaluated", which the options of fit() may replace; "hyperparameters", to be compared; and
  // "stop", the reason why the run was over.
  UnrestoredState unrestored;

  // The contents of `found`, on all ranks. If that checkpoint is damaged, the previous one is read instead.
  StateDict read(const TrainerOptions& options, const Ranks& ranks, const std::string& run_name);
  // Keeps the values from a checkpoint, of this run or another one, that are not restored when the checkpoint is
  // loaded.
  void keep_unrestored(const StateDict& saved) {
    unrestored.keep(saved, "rng");
    if (!found) return;
    for (const char* name : {"settings", "schedulers", "evaluated", "hyperparameters", "stop"})
      unrestored.keep(saved, name);
    if (finished().empty()) unrestored.drop({"stop"});
  }
  std::string finished() const {
    const StateValue* const why = unrestored.find("stop");
    return why ? std::get<std::string>(*why) : std::string();
  }
  // If the run was over when it was saved, ends it again; false: it was not over.
  bool finish_again(const Stop& stop) {
    const std::string why = finished();
    if (why.empty()) return false;
    stop.ask(why, Stop::FINISHED);
    unrestored.drop({"stop"});
    return true;
  }
  // After a pause, random numbers that hooks draw at FIT_START do not change training, whether the pause is saved or
  // not: a run that is resumed there restores the generators after FIT_START.
  void keep_random(const OwnRandom& random);

  // Called once everything is known that a fit sets, and that the program logs when it begins. `now` returns the
  // hyperparameters. Differences are reported. If a callback has finished the run and has other options now, the run is
  // not over, and the callback decides again.
  void compare_options(const Ranks& ranks, const std::function<StateDict()>& now);
  void report_resume(const TrainerOptions& options, const State& state, Progress progress, bool in_first_fit) const;

  // Restores schedules and evaluators that the program gives to fit(). Their saved values are kept until the fit has
  // begun, because it may fail before.
  void restore_given(SchedulePlan& schedules, Evaluations& evaluations) const;
  void restore_scale(TrainStep& step);  // restores the scaler that a fit has made
  void restore_settings(torch::nn::Module& model) const;
  // Called when training begins, because hooks may have drawn random numbers before.
  void restore_random(OwnRandom& random);
  // Notes that the first fit has begun at this time.
  void note_resumed(const Timestamp& now) {
    if (found) resumed_at = saving::moment_of(now);
    found.reset();
    unrestored.drop({"settings", "schedulers", "evaluated", "hyperparameters"});
  }

  // The reason of a request to stop, for a checkpoint: empty unless the run is over for good.
  static std::string reason_to_save(const Stop& stop) {
    return stop.asked() && stop.kind() == Stop::FINISHED ? stop.why() : "";
  }
};

}  // namespace composer
