#pragma once
#include <string>

#include "composer/core/event.h"
#include "composer/core/export.h"

namespace composer {

struct State;

// A callback that derives from this as well is told of every event and of every call of a plug-in at it, as a profiler
// needs. Calls come from the thread that drives the trainer, and must not throw. After an error in an event, its end
// is not told.
class COMPOSER_EXPORT CallWatcher {
 public:
  enum class Kind { ALGORITHM, CALLBACK };  // loggers are callbacks

  virtual ~CallWatcher();

  virtual void event_begins(Event event, const State& state) = 0;  // before its first listener is called
  virtual void event_ends(Event event, const State& state) = 0;    // after the last
  virtual void call_begins(Event event, Kind kind, const std::string& who) = 0;
  virtual void call_ends() = 0;  // of the call that began last; also if it has thrown
};

}  // namespace composer
