#pragma once
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "composer/core/event.h"
#include "composer/core/state_dict.h"
#include "composer/core/time.h"

namespace composer {

// The fit of the program that began last, and where it began. Fits are counted, so that a restarted program does only
// what is left of them. A fit that is repeated after an error keeps its number.
struct BegunFit {
  std::int64_t number = 0;
  Timestamp from;    // zero after reset_time
  OptionalTime end;  // the fit's max_duration; unset: the caller ends the fit

  void visit_state(StateVisitor& visit) {
    visit("number", number);
    visit("from", from);
    Time last = end ? *end : Time("0ba");
    if (visit.is_loading() ? visit.has("end") : end.has_value()) visit("end", last), end = last;
  }
};

// What follows a batch, epoch or iteration that was counted: the event of its end, evaluations, the checkpoint's event
// and the checkpoint. `from` is the first of these that is still to be done.
struct Unfinished {
  enum From : std::uint8_t { END, EVALUATIONS, CHECKPOINT, SAVE } from;
  Event ended, checkpoint;
};

// The sequence of a trainer's fits: which one began last, how it ended, and what it left for the next one.
struct FitHistory {
  enum class Remaining : std::uint8_t { ALL, REST, NOTHING };  // of a fit, in a resumed run

  // A resumed run calls the same fits again. All fits before the last begun one have ended, for whatever reason. The
  // current time cannot tell that, because it may have been reset since. `stop_asked`: after a signal has ended the
  // last fit, later fits have nothing to do until the program clears the stop.
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
  void repeat() { next = last->number; }                           // the next fit repeats the last one
  std::int64_t number() const { return last ? last->number : 0; }  // of the last fit; 0: none
  bool has_unfinished() const { return unfinished || end_is_unfinished; }
  void forget_unfinished() {
    unfinished.reset();
    end_is_unfinished = false;
  }
  // Whether the run ended normally. A run that was interrupted or failed is to be begun again.
  bool end_well() const { return !failed && interrupted_by == 0 && std::uncaught_exceptions() <= exceptions; }

  std::optional<BegunFit> last;                 // the last begun fit, also of the run that is resumed; unset: none
  std::int64_t next = 0;                        // number of the next fit
  std::optional<Unfinished> unfinished;         // left by a fit that an error ended; the next fit does it first
  bool end_is_unfinished = false;               // whether end() was left unfinished in the same way
  int interrupted_by = 0;                       // the signal that ended the last fit; 0: none
  bool paused = false;                          // the last fit was paused; the next one continues from there
  std::string ended_by;                         // the error that ended the last fit; empty: none
  bool failed = false;                          // whether a call has failed since the last one that ended normally
  int exceptions = std::uncaught_exceptions();  // uncaught exceptions when the trainer was made
};

}  // namespace composer
