#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "composer/core/state_dict.h"
#include "composer/core/time.h"
#include "composer/data/shared_loader.h"
#include "composer/trainer/batch_source.h"
#include "composer/trainer/process_scope.h"
#include "composer/trainer/training_data.h"

namespace composer {

class Ranks;

// Wall time since the last lap, without the time that was skipped.
class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;
  Seconds lap() {
    const auto now = Clock::now();
    return now - std::exchange(from_, now);
  }
  void skip(Clock::duration time) { from_ += time; }

 private:
  Clock::time_point from_ = Clock::now();
};

// The state that exists only between begin() and end(). The end of the fit is in state.max_duration.
struct Fit {
  // What a fit holds: the right to read the loader, and the trainer's settings of the process.
  struct Holds {
    data::LoaderLease loader;
    ProcessClaim process;
    std::shared_ptr<void> among_ranks;  // set if several ranks train
  };
  Fit(const TrainingData& data, const Ranks& ranks, Holds given)
      : holds(std::move(given)), source(data.feed(), ranks, data.longest_epoch()) {}

  // Transfers what it holds to the calling thread, which may be another one than that of begin().
  void move_here() {
    if (thread == std::this_thread::get_id()) return;
    thread = std::this_thread::get_id();
    holds.loader.move_here();
    holds.process.move_here();
  }

  Holds holds;
  std::thread::id thread = std::this_thread::get_id();
  BatchSource source;
  Stopwatch stopwatch;
  bool is_timed = true;     // whether time counts for the next batch
  bool first_batch = true;  // no batch has been trained yet
  bool first_loss = true;   // no loss has been computed yet
  bool warned_of_mode = false;
  // The previous fit was paused. Reset once the beginning of this fit is saved, if it is to be saved.
  bool follows_pause = false;
  bool begins_after_pause = false;  // follows_pause, and the newest checkpoint would resume the previous fit
  bool limited = true;              // false in a trial, whose caller decides the end
  bool skipped = false;             // nothing is left to do: no event is fired and nothing is trained
  // The max_duration to restore at the end of the fit, if only this fit changed it.
  std::optional<OptionalTime> max_duration_afterwards;
};

// Excludes its lifetime from the time of the fit's batches. Only the outermost object counts. nullptr: no fit is open.
class Untimed {
 public:
  explicit Untimed(Fit* fit) : fit_(fit && std::exchange(fit->is_timed, false) ? fit : nullptr) {}
  ~Untimed() {
    if (!fit_) return;
    fit_->is_timed = true;
    fit_->stopwatch.skip(Stopwatch::Clock::now() - started_);
  }
  Untimed(const Untimed&) = delete;
  Untimed& operator=(const Untimed&) = delete;

 private:
  Fit* fit_;
  Stopwatch::Clock::time_point started_ = Stopwatch::Clock::now();
};

}  // namespace composer
