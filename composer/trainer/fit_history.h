#pragma once
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "composer/core/event.h"
#include "composer/core/state_dict.h"
#include "composer/core/time.h"

namespace composer {

// Which of the program's fits was begun last, and where. They are counted, so that a program that is started again does
// what is left of them; the one that follows an error is the same fit again.
struct BegunFit {
  std::int64_t number = 0;
  Timestamp from;    // after reset_time: zero
  OptionalTime end;  // max_duration after it; unset: its caller ends it

  void visit_state(StateVisitor& visit) {
    visit("number", number);
    visit("from", from);
    Time last = end ? *end : Time("0ba");
    if (visit.is_loading() ? visit.has("end") : end.has_value()) visit("end", last), end = last;
  }
};

// What follows something that was counted: the event of its end, evaluations, the checkpoint's event and the
// checkpoint; and from where on it has not been done yet.
struct Unfinished {
  enum From : std::uint8_t { END, EVALUATIONS, CHECKPOINT, SAVE } from;
  Event ended, checkpoint;
};

// The fits of a trainer, one after the other: which was begun last, how it ended, and what it has left to the next one.
struct FitHistory {
  enum class Remaining : std::uint8_t { ALL, REST, NOTHING };  // of a fit, when the run goes on

  // In a run that goes on, the program calls the same fits again. Those before the one that was begun last have ended,
  // however that came; where the clock is now says nothing about them, because time may have been reset since.
  // `stop_asked`: a signal that has ended the last one holds until the program clears the stop.
  Remaining remaining(bool goes_on, bool stop_asked) const {
    if (interrupted_by != 0 && stop_asked) return Remaining::NOTHING;
    if (!goes_on || !last) return Remaining::ALL;
    if (next == last->number) return Remaining::REST;
    return next > last->number ? Remaining::ALL : Remaining::NOTHING;
  }
  void begin(const Timestamp& from, const OptionalTime& end) {
    last = {.number = next++, .from = from, .end = end};
    interrupted_by = 0;
    ended_by.clear();
  }
  void repeat() { next = last->number; }                           // the next one is the last one again
  std::int64_t number() const { return last ? last->number : 0; }  // of the last one
  bool has_unfinished() const { return unfinished || end_is_unfinished; }
  void forget_unfinished() {
    unfinished.reset();
    end_is_unfinished = false;
  }
  // A run that was interrupted, or failed, is to be begun again.
  bool end_well() const { return !failed && interrupted_by == 0 && std::uncaught_exceptions() <= exceptions; }

  std::optional<BegunFit> last;                 // or that of the run that goes on; unset: there was none
  std::int64_t next = 0;                        // number of the next one
  std::optional<Unfinished> unfinished;         // by one that an error has ended, to be done by the next one
  bool end_is_unfinished = false;               // the same of what end() does
  int interrupted_by = 0;                       // the last one, a signal; 0: none
  bool paused = false;                          // the last one, so that another one goes on from there
  std::string ended_by;                         // the error that has ended the last one; empty: none has
  bool failed = false;                          // a call, since one has ended well
  int exceptions = std::uncaught_exceptions();  // when the trainer was made
};

}  // namespace composer
