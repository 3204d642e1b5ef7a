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

// The metrics that were measured on the current weights, by label/name: the others say nothing about a checkpoint of
// these.
std::map<std::string, double> current_metrics(const State& state);

// Of which weights a metric was measured, so that the checkpoints of these have its value: the one of `best`. Without
// `best` there is nothing to note.
class MeasuredValues {
 public:
  MeasuredValues(SavedList& list, std::optional<Best> best, OptionNames names);  // `list` outlives it

  // Which values are better, if the options do not say: also before it is measured.
  void prefer(Better better);
  // As the metric declares, else by its name. What is declared, also later, corrects what was guessed.
  void ask_direction(const State& state);

  // When a metric may have been set: a checkpoint of this batch that has no value yet gets what was measured on its
  // weights.
  void note_metrics(const State& state);
  void note_evaluation(const State& state);  // of a fit
  // Before a step of a fit. Warns of an evaluation since the last one if no checkpoint has come to have its weights.
  void note_step(const State& state, bool is_saved);
  // After a step: the metrics of training of its batch were measured on the weights before it, and belong to the
  // checkpoint of these.
  void note_trained(const State& state);
  // The run goes on and has these weights: if others were loaded, those of now are the program's.
  void note_begun(const State& state, std::uint64_t loaded);
  std::uint64_t begun() const { return begun_; }  // those, until it trains; 0: none

  void tell_without_best(const State& state) const;  // when a run is over: warns if `best` has had no effect

 private:
  bool is_current(const State& state) const;
  void warn_of_lost_value(const State& state, bool is_saved);

  SavedList* list_;
  std::optional<Best> best_;
  OptionNames names_;
  std::uint64_t begun_ = 0;      // which the program has set since the run was loaded; 0: none
  std::uint64_t measured_ = 0;   // which there were when a metric of the newest checkpoint was looked for
  std::uint64_t evaluated_ = 0;  // which were evaluated since the last step of a fit; 0: none
  bool warned_ = false;          // of a lost value
};

}  // namespace composer::saving
