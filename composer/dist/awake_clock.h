#pragma once
#include <chrono>
#include <optional>

namespace composer::dist {

// A clock beside that of its owner which leaves out the time that this process was suspended. A step of the owner's
// clock counts up to `longest_step`; a longer one means that the process was suspended.
class AwakeClock {
 public:
  using Time = std::chrono::milliseconds;
  struct Moment {  // on both clocks; or, as the difference of two, a duration
    Time real{0}, awake{0};
    Moment operator-(const Moment& earlier) const { return {real - earlier.real, awake - earlier.awake}; }
  };

  AwakeClock(Time longest_step, Time now) : longest_step_(longest_step), now_{now, Time(0)} {}

  void advance(Time now);  // it never goes back, whatever it is told
  const Moment& now() const { return now_; }
  Time awake() const { return now_.awake; }
  // The length of the last suspension, if it has ended less than `ago` before now. The beginning counts as one of no
  // length.
  std::optional<Time> suspended_within(Time ago) const;

 private:
  Time longest_step_;
  Moment now_;
  Time suspended_{0};
  Time suspended_until_{0};  // awake
};

}  // namespace composer::dist
