#pragma once
#include <cstdint>
#include <functional>

#include "composer/core/event.h"
#include "composer/core/export.h"
#include "composer/core/lease.h"
#include "composer/core/weights_use.h"

namespace composer {

struct State;
class Logger;
class StateDict;
class StateVisitor;

// Where an algorithm runs among the others of the same event.
enum class Placement : std::uint8_t { ANY, FIRST, LAST };

// Makes the gradients of a step in another way than by one pass over the batch. SAM, for example, needs a second pass
// at other weights.
class COMPOSER_EXPORT StepRule {
 public:
  // Computes the unscaled gradients of the batch at the current weights. `counts`: as in a step without a rule. Else
  // only algorithms see its events, none AFTER_TRAIN_BATCH (so no clipping), and buffers (running statistics) and
  // random numbers are restored. The losses and metrics of the step are those of its first pass, counting or not.
  using Pass = std::function<void(bool counts)>;

  virtual ~StepRule();
  // Leaves the gradients of the step in the parameters. Calls pass(true) exactly once, after all calls of pass(false).
  // May run several times in a step: an optimizer such as L-BFGS evaluates its closure as often as it likes.
  virtual void make_gradients(State& state, const Pass& pass) = 0;
};

// Changes training. events() is asked once, when it is registered. At each of these events match() is asked once, and
// apply() is called if it returns true. Algorithms run in the order in which they were given, reversed on the events
// whose name begins with AFTER_, so that what one does before it undoes after. An algorithm that has seen
// EVAL_BEFORE_ALL, EVAL_START, EVAL_STANDALONE_START or PREDICT_START sees the event that closes it, also after a
// signal or an error. Throwing ends the run, with the event and this algorithm's name attached to the error.
//
// An algorithm replaces tensors of the batch, as in state.batch.set("input", changed), and never writes into them: they
// may be views of the data set, metrics of training are measured on them, and an optimizer with a closure trains the
// same batch several times. A tensor that apply() has changed in place is a DataError.
class COMPOSER_EXPORT Algorithm {
 public:
  virtual ~Algorithm();
  virtual EventSet events() const = 0;
  virtual bool match(Event event, const State& state) const;  // true by default
  virtual void apply(Event event, State& state, Logger& logger) = 0;

  // As Callback::local_hparams().
  virtual StateDict local_hparams() const;
  // What of it a checkpoint keeps, beside its options: nothing by default. See StateVisitor.
  virtual void visit_state(StateVisitor& visit);

  virtual Placement placement() const;  // ANY by default
  // Without it, what it has trained cannot be loaded: it changes the model, say. false by default.
  virtual bool required_on_load() const;
  // Gives samples the targets of others as well, or losses of them; false by default.
  virtual bool mixes_targets() const;
  // Mixes the losses of several targets instead of the targets; false by default. There may be one such, and no
  // algorithm after it may mix targets, which it would mix again: a ConfigError of the trainer.
  virtual bool interpolates_loss() const;
  // Whether it runs in the trial steps of Trainer::find_lr(), which are undone: true by default. False for one that
  // keeps what it has seen elsewhere than in visit_state(), the model and the optimizer.
  virtual bool takes_part_in_trials() const;
  // Lives as long as this algorithm; nullptr by default. Only one algorithm of a trainer may have one.
  virtual StepRule* step_rule();
  // The weights that the model has in this use instead of the trained ones. EMA, for example, returns its averages.
  // nullptr, the default: the trained ones. Called before evaluations, predictions and exports, and to see whether they
  // have changed. Each tensor has the size, dtype and device of the model's; names may be left out. Until the use
  // ends, the model's tensors share the memory of these tensors, so they must not be written to. Only one algorithm of
  // a trainer may hand out weights.
  virtual const WeightsByName* weights_for(WeightsUse use);

 private:
  friend class Engine;
  Lease lease_;
};

}  // namespace composer
