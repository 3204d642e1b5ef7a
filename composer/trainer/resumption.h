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

// Says of which file the error is.
void naming(const std::string& from, const std::function<void()>& load);

// Null: there is none. Throws CheckpointError if it is a single value.
const StateDict* group_in(const StateDict& saved, const char* name);

// What of a checkpoint is not in force yet, as it was saved. A checkpoint that is written meanwhile gets it as it is,
// instead of what there is now, so a save between two starts forgets nothing.
class Waiting {
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

// The checkpoint that this run goes on from, if there is one, and what else its save_folder contains. Rank 0 alone
// reads the folder.
saving::ResumePoint checkpoint_to_resume(const TrainerOptions& options, const Ranks& ranks);
// The ids of a folder's checkpoints; unset: it cannot be read.
std::optional<std::set<std::string>> ids_in(const std::string& folder);
// `folder` is the save_folder of a trainer without the option run_name, now that its run has a name. If that is another
// folder than the one in which a checkpoint was looked for, what it contains is noted in `chosen`.
void look_into_named(const std::string& folder, const TrainerOptions& options, saving::ResumePoint& chosen);

// What a checkpoint has brought. That of the own run, to go on from, is `found` until the first fit has begun.
struct Resumption : saving::ResumePoint {
  std::string loaded_from;    // path of what was loaded last; empty: nothing
  std::uint64_t weights = 0;  // which those of the last whole state were; what is said of them is of no others
  std::optional<saving::Moment> went_on;  // where the fit that was under way has gone on, in this process
  StateDict hyperparameters_before;       // of the run that goes on
  // "rng" waits until training begins, because hooks may draw random numbers before, and "scaler" until a fit scales
  // losses. Of the own run, until the first fit has begun: "settings" of the model; "schedulers" and "evaluated" for
  // what the options of fit() may replace; "hyperparameters" to be compared; and "stop", why the run was over.
  Waiting waiting;

  // What `found` contains, on all ranks. One that is damaged gives way to the one before.
  StateDict read(const TrainerOptions& options, const Ranks& ranks, const std::string& run_name);
  // What has come from the checkpoint of the own run, or of another one, and is not in force when that is loaded.
  void wait(const StateDict& saved) {
    waiting.keep(saved, "rng");
    if (!found) return;
    for (const char* name : {"settings", "schedulers", "evaluated", "hyperparameters", "stop"})
      waiting.keep(saved, name);
    if (finished().empty()) waiting.drop({"stop"});
  }
  std::string finished() const {
    const StateValue* const why = waiting.find("stop");
    return why ? std::get<std::string>(*why) : std::string();
  }
  // A run that was over when it was saved is so again; false: it was not.
  bool finish_again(const Stop& stop) {
    const std::string why = finished();
    if (why.empty()) return false;
    stop.ask(why, Stop::FINISHED);
    waiting.drop({"stop"});
    return true;
  }
  // After a pause, what hooks draw at FIT_START changes nothing, whether it is saved or not: so it is in a run that
  // goes on from there.
  void keep_random(const OwnRandom& random);

  // Once all is known that a fit sets, and that the program logs when it begins: `now` gives the hyperparameters. What
  // differs is told. A callback that has finished the run, and has other options now, judges it anew.
  void compare_options(const Ranks& ranks, const std::function<StateDict()>& now);
  void tell(const TrainerOptions& options, const State& state, Progress progress, bool in_first_fit) const;

  // For schedules and evaluators that the program gives to fit(). They wait until the fit has begun: it may fail
  // before.
  void restore_given(SchedulePlan& schedules, Evaluations& evaluations) const;
  void restore_scale(TrainStep& step);  // for a scaler that a fit has made
  void restore_settings(torch::nn::Module& model) const;
  void restore_random(OwnRandom& random);  // once training begins: hooks may have drawn random numbers meanwhile
  // The first fit has begun at this moment.
  void go_on(const Timestamp& now) {
    if (found) went_on = saving::moment_of(now);
    found.reset();
    waiting.drop({"settings", "schedulers", "evaluated", "hyperparameters"});
  }

  // What is saved of a request to stop: nothing, unless the run is over for good.
  static std::string reason_to_save(const Stop& stop) {
    return stop.asked() && stop.kind() == Stop::FINISHED ? stop.why() : "";
  }
};

}  // namespace composer
