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

// The metrics that were measured on the current weights, by label/name: the others say nothing about a checkpoint of
// these.
std::map<std::string, double> current_metrics(const State& state);

// Knows of which weights the metric of `best` was measured, so that the checkpoints of these weights have its value.
// Without `best` no value is noted. A default-constructed one is of a trainer without checkpoints: nothing happens.
class MeasuredValues {
 public:
  MeasuredValues() = default;
  // The list and the schedule outlive it.
  MeasuredValues(SavedList& list, const SaveSchedule& schedule, std::optional<Best> best, OptionNames names);

  // Which values are better, if the options do not say: also before it is measured.
  void prefer(Better better);
  // As the metric declares, else by its name. What is declared, also later, corrects what was guessed.
  void ask_direction(const State& state);

  // When a metric may have been set: a checkpoint of this batch that has no value yet gets what was measured on its
  // weights.
  void take_metrics(const State& state);
  // take_metrics(); and between two fits the program may evaluate what it likes.
  void after_evaluation(const State& state);
  // take_metrics(). Warns of an evaluation since the last step of the fit if no checkpoint has come to have its
  // weights.
  void before_step(const State& state);
  // The metrics of training of this step's batch were measured on the weights before it, and belong to the checkpoint
  // of these.
  void after_step(const State& state);
  // The run goes on. If other weights than those of now were loaded, those of now are the program's.
  void go_on(const State& state, std::uint64_t loaded);
  std::uint64_t weights_of_program() const { return of_program_; }  // until it trains; 0: none

  void warn_without_best(const State& state) const;  // when a run is over, if `best` has had no effect

 private:
  bool is_current(const State& state) const;
  void warn_of_lost_value(const State& state);

  SavedList* list_ = nullptr;  // null, as the schedule: there are no checkpoints
  const SaveSchedule* schedule_ = nullptr;
  std::optional<Best> best_;
  OptionNames names_;
  std::uint64_t of_program_ = 0;  // which the program has set since the run was loaded; 0: none
  std::uint64_t measured_ = 0;    // which there were when a metric of the newest checkpoint was looked for
  std::uint64_t evaluated_ = 0;   // which were evaluated since the last step of a fit; 0: none
  bool warned_ = false;           // of a lost value
};

}  // namespace composer::saving
