#pragma once
#include <cstdint>

#include "composer/core/event.h"
#include "composer/core/export.h"

namespace composer {

struct State;
class Logger;
class StateVisitor;

// Where an algorithm runs among the others of the same event.
enum class Placement : std::uint8_t { ANY, FIRST, LAST };

// Changes training. events() is asked once, when it is registered; at each of these events match() is asked once, and
// apply() called if it said yes. Algorithms run in the order in which they were given, reversed on the events whose
// name begins with AFTER_, so that what one does before it undoes after. An algorithm that has seen EVAL_BEFORE_ALL,
// EVAL_START, EVAL_STANDALONE_START or PREDICT_START sees the event that closes it, also after a signal or an error.
// Throwing ends the run, with the event and this algorithm's name attached to the error.
class COMPOSER_EXPORT Algorithm {
 public:
  virtual ~Algorithm();
  virtual EventSet events() const = 0;
  virtual bool match(Event event, const State& state) const;  // true by default
  virtual void apply(Event event, State& state, Logger& logger) = 0;

  // What of it a checkpoint keeps, beside its options: nothing by default. See StateVisitor.
  virtual void visit_state(StateVisitor& visit);

  virtual Placement placement() const;  // ANY by default
  // Without it, what it has trained cannot be loaded: it changes the model, say. false by default.
  virtual bool required_on_load() const;
  virtual bool interpolates_loss() const;  // mixes losses of several targets; more than one such is warned of
};

}  // namespace composer
