#pragma once

namespace composer {

// Decides whether a fit is over. A limit, a request to stop and a signal may come at any moment. They are therefore
// looked at only here, once per step and at the end, and all other code reads the decision.
class Ending {
 public:
  // Notes a signal that has come; 0: none. Only the first signal counts; true: this is the first one.
  bool note(int signal);
  // At the head of a step: makes the decision that holds until the next call. True: the fit is over.
  bool decide(bool limit_reached, bool stop_asked);
  // At the end: makes the last decision. A loop may end without a step that found the fit over.
  void decide_last(bool limit_reached, bool stop_asked);

  bool over() const { return over_; }
  // Whether the last decision was made and the fit ended because of a request or a signal, not only because of its
  // limit. The signal may also have come after the decision.
  bool was_asked() const { return last_ && (stop_asked_ || interrupted()); }
  bool interrupted() const { return signal_ != 0; }  // a signal was noted, even if no decision was made since
  int signal() const { return signal_; }

 private:
  bool over_ = false, stop_asked_ = false;  // as of the last decision
  bool last_ = false;
  int signal_ = 0;
};

}  // namespace composer
