#pragma once
#include <utility>

#include "composer/core/event.h"

namespace composer {

class Engine;

// Sets a bool to true for its lifetime.
class Flag {
 public:
  explicit Flag(bool& flag) : flag_(flag), before_(std::exchange(flag, true)) {}
  ~Flag() { flag_ = before_; }
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;

 private:
  bool& flag_;
  bool before_;
};

// The calls of a trainer: which of them may be made during another call, and where in training the trainer is.
class Calls {
 public:
  [[nodiscard]] Flag begin() { return Flag(busy_); }  // of begin(), step(), end(), eval(), predict() or find_lr()
  [[nodiscard]] Flag begin_trial() { return Flag(trial_); }  // of find_lr()
  void note(Event event) {
    last_ = event;
    if (event < Event::EVAL_BEFORE_ALL) last_of_training_ = event;
  }
  bool busy() const { return busy_; }
  bool in_trial() const { return trial_; }
  Event last() const { return last_; }
  // The last event that is not of an evaluation or prediction.
  Event last_of_training() const { return last_of_training_; }

  // Throws ConfigError, whose text begins with the name of the call, if another call is running.
  void require_idle(const char* call) const;
  void require_no_trial(const char* call) const;
  // For saving. Throws ConfigError if an algorithm has exchanged the weights, or if, in a fit, something that follows a
  // batch, an epoch or an iteration is still to be done.
  void require_own_weights(const char* call, const Engine& engine) const;
  void require_exact_place(const char* call) const;

 private:
  bool busy_ = false, trial_ = false;
  Event last_ = Event::INIT, last_of_training_ = Event::INIT;
};

}  // namespace composer
