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

// Time on the wall clock since the last lap, without what was skipped.
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

// What there is between begin() and end() alone. How long the fit lasts is state.max_duration.
struct Fit {
  // The right to read the loader, and to what the trainer wants of the process.
  struct Holds {
    data::LoaderLease loader;
    ProcessClaim process;
    std::shared_ptr<void> among_ranks;  // where several train
  };
  Fit(const TrainingData& data, const Ranks& ranks, Holds given)
      : holds(std::move(given)), source(data.feed(), ranks, data.longest_epoch()) {}

  // What it holds is the thread's that drives the trainer, which need not be the one of begin().
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
  bool is_timed = true;     // time counts for the batch that comes next
  bool first_batch = true;  // is not trained yet
  bool first_loss = true;   // is not computed yet
  bool warned_of_mode = false;
  bool follows_pause = false;       // of the fit before; until its beginning is saved, where that is to be
  bool begins_after_pause = false;  // likewise, and a checkpoint would have the fit before go on
  bool limited = true;              // false in a trial, whose end its caller decides
  bool skipped = false;             // nothing is left to do: no event fires, nothing is trained
  // To be restored when the fit ends: what only this fit made of max_duration.
  std::optional<OptionalTime> max_duration_afterwards;
};

// While the outermost of these lives, time does not count for the batches of the fit; nullptr: there is none.
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
