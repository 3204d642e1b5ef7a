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

// When a run is saved: at an interval within a fit, and at the end of the fit unless that state is already saved.
class SaveSchedule {
 public:
  // The last periodic checkpoint that was saved, or is being saved.
  struct Last {
    Moment moment;
    std::uint64_t weights = 0;  // version of its weights, as in Run::weights_version()
    bool knows_finish = false;  // it contains that the run is over for good
  };
  SaveSchedule(Interval interval, bool is_off) : interval_(std::move(interval)), is_off_(is_off) {}

  void begin_fit() { in_fit_ = true; }
  void end_fit() { in_fit_ = false; }
  bool in_fit() const { return in_fit_; }
  // Number of the program's fit that began last. Unset: none began, or a plug-in that does not know.
  const std::optional<std::int64_t>& fit() const { return fit_; }
  void set_fit(std::int64_t number) { fit_ = number; }
  bool is_due(Event event, const State& state) const;  // at a *_CHECKPOINT event
  // Whether the state at the end of a fit is saved, or need not be saved. `begun`: version of the weights that the
  // program has set in a resumed run before training; 0: none.
  bool is_saved(const State& state, std::uint64_t begun) const;

  const std::optional<Last>& last() const { return last_; }
  std::int64_t last_batch() const { return last_ ? last_->moment.batch : -1; }
  // Sets the last checkpoint and returns the one before, to be set again if this one cannot be written. Unset: the
  // saved batch was before a reset of time, or could not be written.
  std::optional<Last> set_last(std::optional<Last> last) { return std::exchange(last_, last); }
  // Notes that the last checkpoint contains that the run is over. A checkpoint written before a stopper ended the run,
  // in an evaluation of the same batch, does not contain that.
  void set_finished() {
    if (last_) last_->knows_finish = true;
  }

 private:
  Interval interval_;
  bool is_off_;  // no periodic checkpoints are kept
  bool in_fit_ = false;
  std::optional<std::int64_t> fit_;
  std::optional<Last> last_;
};

}  // namespace composer::saving
