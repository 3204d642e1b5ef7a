#pragma once
#include <memory>
#include <optional>

#include "composer/trainer/ending.h"
#include "composer/trainer/signals.h"

namespace composer {

struct State;
class Ranks;
class ReplicaCheck;
class TrainingTime;

// Whether the fit of a trainer is over, and why: requests to stop, signals, and the limit of its time. All ranks end a
// fit after the same step, so they decide together.
class Stopping {
 public:
  Stopping(const Ranks& ranks, const State& state, const TrainingTime& time, ReplicaCheck& replicas)
      : ranks_(ranks), state_(state), time_(time), replicas_(replicas) {}

  void begin_fit(bool handle_signals);
  void end_fit();

  // Decides whether the fit is over, at the head of a step and at the end of a fit, after the ranks have exchanged
  // requests, signals and whether any of them has saved. Collectives: all ranks call them at the same places. True: the
  // fit is over.
  bool decide_with_ranks(bool limit_reached);
  void decide_last_with_ranks();
  // Notes a signal that has arrived; true: this fit is interrupted. With several ranks, signals are only noted where
  // ranks exchange them.
  bool look_for_signal();
  void note_signal(int signal);  // a signal that ranks have exchanged; 0: none. Does nothing without a fit

  // False if there is no fit.
  bool over() const { return ending_ && ending_->over(); }
  bool interrupted() const { return ending_ && ending_->interrupted(); }
  // Valid once the end of the fit was decided: whether a stop or a signal has ended it, so that another fit continues
  // from there.
  bool pauses() const;
  int signal() const { return ending_ ? ending_->signal() : 0; }  // that has interrupted the fit; 0: none

  // A signal to this process that may not have been considered in a decision yet.
  int pending_signal() const { return signals_->pending(); }
  bool is_asked_here() const;
  // The watch of a fit that handles signals. Any thread may use it, even after the trainer is gone.
  const std::shared_ptr<SignalWatch>& signals() const { return signals_; }

 private:
  bool exchange_with_ranks();  // a collective: whether any rank was asked to stop or has received a signal

  const Ranks& ranks_;
  const State& state_;
  const TrainingTime& time_;
  ReplicaCheck& replicas_;
  std::shared_ptr<SignalWatch> signals_ = std::make_shared<SignalWatch>();
  std::optional<Ending> ending_;  // of the fit
};

}  // namespace composer
