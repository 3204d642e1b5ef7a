#pragma once

namespace composer {

// Whether a fit is over. Its limit, a request to stop and a signal may come at any moment, so they are looked at here,
// once a step and at the end, and everybody else reads the verdict.
class Ending {
 public:
  // What has come, wherever it is worth a look; 0: nothing. The first one counts, and true says that this is it.
  bool note(int signal);
  // At the head of a step: the verdict until the next call. True: the fit is over.
  bool decide(bool limit_reached, bool stop_asked);
  // At the end: the last verdict. Not each loop has made a step that found the fit over.
  void decide_last(bool limit_reached, bool stop_asked);

  bool over() const { return over_; }
  // The last verdict has come: a request, or a signal, which may also have come since, and not the limit alone.
  bool was_asked() const { return last_ && (stop_asked_ || interrupted()); }
  bool interrupted() const { return signal_ != 0; }  // noted, if not decided yet
  int signal() const { return signal_; }

 private:
  bool over_ = false, stop_asked_ = false;  // by the verdict
  bool last_ = false;
  int signal_ = 0;
};

}  // namespace composer
