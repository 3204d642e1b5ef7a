#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "composer/checkpoint/folder.h"
#include "composer/core/state_dict.h"
#include "composer/core/stop.h"
#include "composer/core/time.h"
#include "composer/trainer/model_settings.h"

namespace composer {

// Which hyperparameters the log of the run has: a checkpoint that was saved before the first fit contains all.
struct LoggedHyperparameters {
  bool algorithms = false, options = false;

  void visit_state(StateVisitor& visit) {
    visit("algorithms", algorithms);
    visit("options", options);
  }
};

// What a checkpoint has brought, and what of it waits until training begins.
struct Resumption {
  std::optional<saving::Found> found;  // the own run's, to go on from; until the first fit has begun
  std::string loaded_from;             // path of what was loaded last; empty: nothing
  std::uint64_t weights = 0;           // which those of the last whole state were; what is said of them is of no others
  std::optional<Timestamp> went_on;    // where the fit that was under way has gone on, in this process
  StateDict random;                    // to be restored when training begins: hooks may draw random numbers before
  StateDict given;                     // state of what the options of fit() may replace; until the first fit has begun
  ModelSettings settings;              // likewise: what the run had set of its model since it was made
  StateDict hyperparameters_before;    // of the run that goes on
  bool begins_again = false;           // an earlier process has begun the run, and there is no checkpoint to go on from
  std::string finished;                // why the own run was over; empty: it was not

  // What is saved of a request to stop: nothing, unless the run is over for good.
  static std::string reason_to_save(const Stop& stop) {
    return stop.asked() && stop.kind() == Stop::FINISHED ? stop.why() : "";
  }
};

}  // namespace composer
