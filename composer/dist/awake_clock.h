#pragma once
#include <chrono>
#include <optional>

namespace composer::dist {

// A second clock beside its owner's, which leaves out the time that this process was suspended. A step of the owner's
// clock counts up to `longest_step`; a longer one means that the process was suspended.
class AwakeClock {
 public:
  using Time = std::chrono::milliseconds;
  struct Moment {  // a point in time on both clocks, or a duration as the difference of two
    Time real{0}, awake{0};
    Moment operator-(const Moment& earlier) const { return {real - earlier.real, awake - earlier.awake}; }
  };

  AwakeClock(Time longest_step, Time now) : longest_step_(longest_step), now_{now, Time(0)} {}

  void advance(Time now);  // the clock never goes back, even if `now` does
  const Moment& now() const { return now_; }
  Time awake() const { return now_.awake; }
  // The length of the last suspension, if it ended less than `ago` before now; else nullopt. The construction counts as
  // the end of a suspension of length 0.
  std::optional<Time> suspended_within(Time ago) const;

 private:
  Time longest_step_;
  Moment now_;
  Time suspended_{0};
  Time suspended_until_{0};  // on the awake clock
};

}  // namespace composer::dist
