#pragma once
#include <cstdint>
#include <optional>
#include <utility>

#include "composer/checkpoint/moment.h"
#include "composer/core/event.h"
#include "composer/core/interval.h"

namespace composer {
struct State;
}

namespace composer::saving {

// Whether the run is over for good.
bool is_finished(const State& state);

// When a run is saved: in a fit by an interval, and at its end unless what there is then is saved already.
class SaveSchedule {
 public:
  // The periodic checkpoint that was saved last, or is being saved.
  struct Last {
    Moment moment;
    std::uint64_t weights = 0;  // which it has, as Run::weights_version() counts them
    bool knows_finish = false;  // it says that the run is over for good
  };
  SaveSchedule(Interval interval, bool is_off) : interval_(std::move(interval)), is_off_(is_off) {}

  void begin_fit() { in_fit_ = true; }
  void end_fit() { in_fit_ = false; }
  bool in_fit() const { return in_fit_; }
  // Of the program's fits, the one that was begun last; unset: none, or a plug-in does not know.
  const std::optional<std::int64_t>& fit() const { return fit_; }
  void set_fit(std::int64_t number) { fit_ = number; }
  bool is_due(Event event, const State& state) const;  // at a *_CHECKPOINT event
  // Whether what there is at the end of a fit is saved, or need not be. `begun`: the weights that the program has set
  // in a run that goes on, before it has trained; 0: none.
  bool is_saved(const State& state, std::uint64_t begun) const;

  const std::optional<Last>& last() const { return last_; }
  std::int64_t last_batch() const { return last_ ? last_->moment.batch : -1; }
  // Returns the one before, for who cannot write this one. Unset: what was saved is of another count of time, or was
  // not written.
  std::optional<Last> set_last(std::optional<Last> last) { return std::exchange(last_, last); }
  // The last checkpoint is of a run which is found to be over, and says so. One that was written before a stopper has
  // ended the run, in an evaluation of the same batch, does not.
  void set_finished() {
    if (last_) last_->knows_finish = true;
  }

 private:
  Interval interval_;
  bool is_off_;  // no periodic checkpoint is kept
  bool in_fit_ = false;
  std::optional<std::int64_t> fit_;
  std::optional<Last> last_;
};

}  // namespace composer::saving
