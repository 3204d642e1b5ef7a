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
// fit after the same step, so the verdict is theirs together.
class Stopping {
 public:
  Stopping(const Ranks& ranks, const State& state, const TrainingTime& time, ReplicaCheck& replicas)
      : ranks_(ranks), state_(state), time_(time), replicas_(replicas) {}

  void begin_fit(bool handle_signals);
  void end_fit();

  // At the head of a step, and at the end of a fit: the verdict, after ranks have told each other of requests and
  // signals, and that one of them has saved. All of them call it at the same places. True: the fit is over.
  bool decide_with_ranks(bool limit_reached);
  void decide_last_with_ranks();
  // Notes a signal, if one has come; true: this fit is interrupted. Several ranks note signals only where they hear of
  // each other's.
  bool look_for_signal();
  void note_signal(int signal);  // which ranks have told each other of; 0: none. Without a fit: nothing happens

  // Each is false if there is no fit.
  bool over() const { return ending_ && ending_->over(); }
  bool interrupted() const { return ending_ && ending_->interrupted(); }
  // Since the end has decided it: a stop or a signal has ended the fit, and another one goes on from there.
  bool pauses() const;
  int signal() const { return ending_ ? ending_->signal() : 0; }  // that has interrupted it; 0: none

  // What has come to this process, if nobody has decided yet.
  int pending_signal() const { return signals_->pending(); }
  bool is_asked_here() const;
  // Within a fit that handles signals. Any thread may ask it, also when the trainer is gone.
  const std::shared_ptr<SignalWatch>& signals() const { return signals_; }

 private:
  bool exchange_with_ranks();  // all of them call it; whether one of them was asked to stop, or has had a signal

  const Ranks& ranks_;
  const State& state_;
  const TrainingTime& time_;
  ReplicaCheck& replicas_;
  std::shared_ptr<SignalWatch> signals_ = std::make_shared<SignalWatch>();
  std::optional<Ending> ending_;  // of the fit
};

}  // namespace composer
