#pragma once
#include <chrono>

#include "composer/dist/awake_clock.h"

namespace composer::dist {

// Contact of a rank with the store: when the last answer came, the latest long gap between answers, and whether the
// connection broke.
class StoreContact {
 public:
  using Time = AwakeClock::Time;
  using Moment = AwakeClock::Moment;

  StoreContact(Time long_gap, const Moment& now) : long_gap_(long_gap), answered_(now) {}

  bool is_long(Time time) const { return time >= long_gap_; }
  // To be called at each answer. Returns the time since the answer before.
  Moment answered(const Moment& now) {
    const Moment waited = now - answered_;
    answered_ = now;
    if (is_long(waited.real)) gap_ = waited;
    return waited;
  }
  const Moment& gap() const { return gap_; }  // the latest gap that was long
  Time unanswered(const Moment& now) const { return (now - answered_).awake; }
  void set_lost() { lost_ = true; }
  bool is_lost() const { return lost_; }

 private:
  Time long_gap_;
  Moment answered_;
  Moment gap_;
  bool lost_ = false;
};

}  // namespace composer::dist
