#pragma once
#include <string>

#include "composer/core/event.h"
#include "composer/core/export.h"

namespace composer {

struct State;

// A callback that also derives from this is told of every event, and of every call of a plug-in at that event; a
// profiler needs this. Calls come from the thread that drives the trainer, and must not throw. If an event throws,
// event_ends() is not called for it.
class COMPOSER_EXPORT CallWatcher {
 public:
  enum class Kind { ALGORITHM, CALLBACK };  // loggers are callbacks

  virtual ~CallWatcher();

  virtual void event_begins(Event event, const State& state) = 0;  // before its first listener is called
  virtual void event_ends(Event event, const State& state) = 0;    // after the last listener returned
  virtual void call_begins(Event event, Kind kind, const std::string& who) = 0;
  virtual void call_ends() = 0;  // the call that began last has ended, or has thrown
};

}  // namespace composer
