#pragma once
#include <optional>

#include "composer/core/time.h"
#include "composer/trainer/fit.h"
#include "composer/trainer/progress.h"

namespace composer {

struct BatchCounts;
struct FitHistory;
struct State;
class LearningRates;
class Logger;
class Ranks;

// The time of training, state.timestamp. It counts batches, epochs and iterations, sets the learning rates for the next
// batch, and notes what is still to be done after each of them. It also logs the time.
class TrainingTime {
 public:
  TrainingTime(State& state, Logger& logger, const Ranks& ranks, LearningRates& rates, FitHistory& fits,
               std::optional<Fit>& fit)
      : state_(state), logger_(logger), ranks_(ranks), rates_(rates), fits_(fits), fit_(fit) {}

  Progress progress() const;
  bool limit_reached() const { return progress().limit_reached(); }

  // Called when a batch is started: the time since the previous batch was started. The clocks of ranks differ, but all
  // ranks must agree on what is due after a number of seconds. They exchange the times when a batch is started, so a
  // batch is counted with the time up to its start. For one rank: 0, because its own clock is read when a batch is
  // counted.
  Seconds since_last_start();
  // Counts the batch after `report` has run, even if `report` throws: the weights have been stepped, and must not be
  // stepped twice for one batch. The next batch is copied from then on.
  template <class F>
  void count_batch_after(const BatchCounts& counts, F&& report);
  void count_epoch();
  void count_iteration();

  void log_epoch() const;
  void log_batch() const;
  void log_last() const;  // at the end of a fit

 private:
  void count_batch(const BatchCounts& counts);

  State& state_;
  Logger& logger_;
  const Ranks& ranks_;
  LearningRates& rates_;
  FitHistory& fits_;
  std::optional<Fit>& fit_;  // the open fit
};

template <class F>
void TrainingTime::count_batch_after(const BatchCounts& counts, F&& report) {
  try {
    report();
  } catch (...) {
    count_batch(counts);
    throw;
  }
  count_batch(counts);
}

}  // namespace composer
