#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "composer/checkpoint/option_names.h"
#include "composer/checkpoint/save_options.h"

namespace composer {
struct State;
}

namespace composer::saving {

class SavedList;
class SaveSchedule;

// The metrics that were measured on the current weights, by label/name. Other values are excluded, because they do not
// apply to a checkpoint of these weights.
std::map<std::string, double> current_metrics(const State& state);

// Records on which weights the metric of `best` was measured, so that the checkpoints of these weights get its value.
// Without `best` no value is recorded. A default-constructed object belongs to a trainer without checkpoints, and does
// nothing.
class MeasuredValues {
 public:
  MeasuredValues() = default;
  // `list` and `schedule` must outlive this object.
  MeasuredValues(SavedList& list, const SaveSchedule& schedule, std::optional<Best> best, OptionNames names);

  // Sets which values are better if the options do not, also before the metric is measured.
  void prefer(Better better);
  // Determines which values are better: as the metric declares, otherwise by its name. A declaration, also a later one,
  // replaces a guess.
  void ask_direction(const State& state);

  // Call when a metric may have been set. A checkpoint of this batch without a value gets the value measured on its
  // weights.
  void take_metrics(const State& state);
  // Calls take_metrics(). Between two fits, the program may evaluate any weights without a warning.
  void after_evaluation(const State& state);
  // Calls take_metrics(). Warns if weights were evaluated since the last step of the fit, and no checkpoint has these
  // weights.
  void before_step(const State& state);
  // The training metrics of this step's batch were measured on the weights before the step, and belong to the
  // checkpoint of those weights.
  void after_step(const State& state);
  // The run is resumed. `loaded`: version of the weights that were loaded. If the current version differs, the program
  // has set the current weights.
  void note_resumed(const State& state, std::uint64_t loaded);
  std::uint64_t weights_of_program() const { return program_weights_; }  // version, until training begins; 0: none

  void warn_without_best(const State& state) const;  // for the end of a run, if `best` has had no effect

 private:
  bool is_current(const State& state) const;
  void warn_of_lost_value(const State& state);

  SavedList* list_ = nullptr;  // null without checkpoints, like the schedule
  const SaveSchedule* schedule_ = nullptr;
  std::optional<Best> best_;
  OptionNames names_;
  std::uint64_t program_weights_ = 0;  // version of weights that the program has set after loading; 0: none
  std::uint64_t measured_ = 0;   // version of the weights when a metric of the newest checkpoint was last looked up
  std::uint64_t evaluated_ = 0;  // version of the weights that were evaluated since the last step of a fit; 0: none
  bool warned_ = false;          // of a lost value
};

}  // namespace composer::saving
