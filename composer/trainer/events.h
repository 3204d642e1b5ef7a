#pragma once
#include <utility>

#include "composer/core/engine.h"
#include "composer/core/event.h"
#include "composer/core/state.h"
#include "composer/dist/world.h"
#include "composer/trainer/calls.h"
#include "composer/trainer/ranks.h"

namespace composer {

// Fires the events of a trainer. Each event is noted before, so that an error, or another rank that waits for this one,
// can report where it happened.
class Events {
 public:
  Events(const State& state, const Ranks& ranks, Calls& calls, Engine& engine)
      : state_(state), ranks_(ranks), calls_(calls), engine_(engine) {}

  void fire(Event event) {
    note(event);
    engine_.run_event(event);
  }
  void fire_for_algorithms(Event event) {  // callbacks and loggers do not see it
    note(event);
    engine_.run_algorithms_alone(event);
  }

  // Fires an event that opens something, and the event that closes it on every way out.
  class Opened;

 private:
  void note(Event event) {
    calls_.note(event);
    if (dist::World* world = ranks_.world())
      world->at(to_string(event), state_.timestamp.epoch, state_.timestamp.batch);
  }

  const State& state_;
  const Ranks& ranks_;
  Calls& calls_;
  Engine& engine_;
};

class Events::Opened {
 public:
  Opened(Events& events, Event opens, Event closes) : Opened(events, std::pair(opens, closes)) { events_.fire(opens); }
  // After an error, fires the second event for the algorithms that have seen the first.
  ~Opened() {
    if (open_) events_.engine_.unwind(opens_, closes_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  void close() {
    open_ = false;
    events_.fire(closes_);
  }
  // Closes after a signal. There are no results then, so an exception of a callback that wants to read them becomes a
  // warning, and the run ends normally.
  void cut_short();

 private:
  // The object exists once this returns, so that the destructor also closes after an error in the first event.
  Opened(Events& events, std::pair<Event, Event> both) : events_(events), opens_(both.first), closes_(both.second) {}

  Events& events_;
  Event opens_, closes_;
  bool open_ = true;
};

}  // namespace composer
