#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "composer/checkpoint/folder.h"
#include "composer/core/state_dict.h"
#include "composer/core/stop.h"
#include "composer/core/time.h"

namespace composer {

// Which hyperparameters the log of the run has: a checkpoint that was saved before the first fit contains all.
struct LoggedHyperparameters {
  bool algorithms = false, options = false;
  bool options_here = false;  // by this process

  void visit_state(StateVisitor& visit) {
    visit("algorithms", algorithms);
    visit("options", options);
  }
};

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

// What a checkpoint has brought.
struct Resumption {
  std::optional<saving::Found> found;  // the own run's, to go on from; until the first fit has begun
  std::string loaded_from;             // path of what was loaded last; empty: nothing
  std::uint64_t weights = 0;           // which those of the last whole state were; what is said of them is of no others
  std::optional<Timestamp> went_on;    // where the fit that was under way has gone on, in this process
  StateDict hyperparameters_before;    // of the run that goes on
  bool begins_again = false;           // an earlier process has begun the run, and there is no checkpoint to go on from
  // "rng" waits until training begins, because hooks may draw random numbers before, and "scaler" until a fit scales
  // losses. Of the own run, until the first fit has begun: "settings" of the model; "schedulers" and "evaluated" for
  // what the options of fit() may replace; "hyperparameters" to be compared; and "stop", why the run was over.
  Waiting waiting;

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
  // The first fit has begun at this moment.
  void go_on(const Timestamp& now) {
    if (found) went_on = now;
    found.reset();
    waiting.drop({"settings", "schedulers", "evaluated", "hyperparameters"});
  }

  // What is saved of a request to stop: nothing, unless the run is over for good.
  static std::string reason_to_save(const Stop& stop) {
    return stop.asked() && stop.kind() == Stop::FINISHED ? stop.why() : "";
  }
};

}  // namespace composer
