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

// Watches training. It may log, save and request a stop (state.stop.ask("why")), but not change the state, which is
// therefore const; changing it is the part of an Algorithm. Override the methods of the events you want. There is one
// for each event, spelled in lower case: batch_end for Event::BATCH_END (docs/reference/events.md lists all 40, with
// what holds at each). The engine calls only overridden methods. If you override run_event, it gets every event; the
// methods of single events are then called only if you call Callback::run_event.
//
// All calls come from the thread that drives the trainer. Throwing ends the run: the error leaves fit() with the event,
// this callback's name, the epoch and the batch attached.
class COMPOSER_EXPORT Callback {
 public:
  virtual ~Callback();

  virtual void run_event(Event event, const State& state, Logger& logger);

#define COMPOSER_X(NAME, method, kind) \
  virtual void method(const State&, Logger&) {}
  COMPOSER_EVENTS(COMPOSER_X)
#undef COMPOSER_X

  // Its options by name, as numbers, booleans and texts. They are logged when a run begins, stored in checkpoints, and
  // compared when the run is resumed. Nothing by default. A plug-in with an entry in the registry returns describe() of
  // core/entry.h.
  virtual StateDict local_hparams() const;

  // Lists the fields that a checkpoint stores, in addition to the options: nothing by default. See StateVisitor.
  virtual void visit_state(StateVisitor& visit);

  // Called when a fit begins, before anything is changed or trained. Throws ConfigError for options that cannot work in
  // this fit, such as the name of a metric that the fit does not have. Does nothing by default.
  virtual void check_fit(const FitOutline& fit, const State& state) const;

  // The last calls in the life of a trainer, also after an error: close() of every callback, then of every logger, then
  // post_close() of each whose close() did not throw. Exceptions become warnings, and do not prevent the other calls.
  virtual void close(const State&, Logger&) {}
  virtual void post_close() {}

 private:
  friend class Engine;
  Lease lease_;
};

}  // namespace composer
