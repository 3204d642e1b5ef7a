#pragma once
#include "composer/core/event.h"
#include "composer/core/export.h"
#include "composer/core/lease.h"

namespace composer {

struct State;
class Logger;
class StateDict;
class StateVisitor;
struct FitOutline;

// Watches training. It may log, save and ask to stop (state.stop.ask("why")), but not change the state, hence the
// const; to change something is an Algorithm's part. Override the methods of the events you want: one for each event,
// spelled in lower case, e.g. batch_end for Event::BATCH_END (docs/events.md lists all 40 with what holds at each). The
// engine calls no others. Override run_event instead to get every event; the single methods are then called only if you
// call Callback::run_event.
//
// All calls come from the thread that drives the trainer. Throwing ends the run: the error leaves fit() with the event,
// this callback's name, epoch and batch attached.
class COMPOSER_EXPORT Callback {
 public:
  virtual ~Callback();

  virtual void run_event(Event event, const State& state, Logger& logger);

#define COMPOSER_X(NAME, method, kind) \
  virtual void method(const State&, Logger&) {}
  COMPOSER_EVENTS(COMPOSER_X)
#undef COMPOSER_X

  // Its options by name, as numbers, yes or no, and texts: logged when a run begins, saved with it, and compared when
  // it goes on. Nothing by default. A plug-in with an entry in the registry returns describe() of core/entry.h.
  virtual StateDict local_hparams() const;

  // What of it a checkpoint keeps, beside its options: nothing by default. See StateVisitor.
  virtual void visit_state(StateVisitor& visit);

  // Called when a fit begins, before anything is changed or trained: throws ConfigError for options that cannot work in
  // this fit, such as a metric that it does not have. Does nothing by default.
  virtual void check_fit(const FitOutline& fit, const State& state) const;

  // The last calls of its life in a trainer, also after an error: close() of every callback and then of every logger,
  // then post_close() of each whose close() did not throw. What they throw is a warning, and stops nobody else's.
  virtual void close(const State&, Logger&) {}
  virtual void post_close() {}

 private:
  friend class Engine;
  Lease lease_;
};

}  // namespace composer
