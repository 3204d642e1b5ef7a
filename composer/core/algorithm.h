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

// Where an algorithm runs among the algorithms of the same event.
enum class Placement : std::uint8_t { ANY, FIRST, LAST };

// Computes the gradients of a step in another way than by one pass over the batch. SAM, for example, needs a second
// pass at other weights.
class COMPOSER_EXPORT StepRule {
 public:
  // Computes the unscaled gradients of the batch at the current weights. With `counts`, the pass is like that of a step
  // without a rule. Otherwise, only algorithms see its events, AFTER_TRAIN_BATCH is not fired (so nothing is clipped),
  // and buffers (running statistics) and random numbers are restored. The losses and metrics of the step are those of
  // its first pass, with or without `counts`.
  using Pass = std::function<void(bool counts)>;

  virtual ~StepRule();
  // Leaves the gradients of the step in the parameters. Calls pass(true) exactly once, after all calls of pass(false).
  // May be called several times in a step: an optimizer such as L-BFGS evaluates its closure repeatedly.
  virtual void make_gradients(State& state, const Pass& pass) = 0;
};

// Changes training. events() is called once, at registration. At each of these events match() is called once, and
// apply() is called if match() returns true. Algorithms run in the order in which they were given. On events whose name
// begins with AFTER_ the order is reversed, so that an algorithm can undo there what it did at the matching event. An
// algorithm that has seen EVAL_BEFORE_ALL, EVAL_START, EVAL_STANDALONE_START or PREDICT_START also sees the event that
// closes it, even after a signal or an error. Throwing ends the run, with the event and this algorithm's name attached
// to the error.
//
// An algorithm replaces tensors of the batch, as in state.batch.set("input", changed), and never writes into them: they
// may be views of the data set, training metrics are measured on them, and an optimizer with a closure trains the same
// batch several times. If apply() changes a tensor in place, that is a DataError.
class COMPOSER_EXPORT Algorithm {
 public:
  virtual ~Algorithm();
  virtual EventSet events() const = 0;
  virtual bool match(Event event, const State& state) const;  // true by default
  virtual void apply(Event event, State& state, Logger& logger) = 0;

  // Like Callback::local_hparams().
  virtual StateDict local_hparams() const;
  // Lists the fields that a checkpoint stores, in addition to the options: nothing by default. See StateVisitor.
  virtual void visit_state(StateVisitor& visit);

  virtual Placement placement() const;  // ANY by default
  // Whether checkpoints of a run with this algorithm can be loaded only with it, for example because it changes the
  // model. false by default.
  virtual bool required_on_load() const;
  // Whether it mixes targets of several samples, or losses for them; false by default.
  virtual bool mixes_targets() const;
  // Whether it mixes the losses of several targets instead of the targets; false by default. At most one algorithm may
  // do so, and no later algorithm may mix targets, because they would be mixed twice; otherwise the trainer throws
  // ConfigError.
  virtual bool interpolates_loss() const;
  // Whether it runs in the trial steps of Trainer::find_lr(), which are undone: true by default. Return false if it
  // stores what it has seen anywhere but in visit_state(), the model and the optimizer.
  virtual bool takes_part_in_trials() const;
  // Must live as long as this algorithm; nullptr by default. Only one algorithm of a trainer may have a step rule.
  virtual StepRule* step_rule();
  // The weights that replace the trained ones for this use; nullptr, the default, means the trained weights. EMA, for
  // example, returns its averages. Called before evaluations, predictions and exports, and to check whether the weights
  // have changed. Each tensor must have the size, dtype and device of the model's tensor; names may be missing. Until
  // the use ends, the model's tensors share the memory of these tensors, so the tensors must not be written to. Only
  // one algorithm of a trainer may return weights.
  virtual const WeightsByName* weights_for(WeightsUse use);

 private:
  friend class Engine;
  Lease lease_;
};

}  // namespace composer
