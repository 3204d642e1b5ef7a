#include "composer/trainer/ending.h"

namespace composer {

bool Ending::note(int signal) {
  if (signal == 0 || signal_ != 0) return false;
  signal_ = signal;
  return true;
}

bool Ending::decide(bool limit_reached, bool stop_asked) {
  stop_asked_ = stop_asked;
  over_ = limit_reached || stop_asked || interrupted();
  return over_;
}

void Ending::decide_last(bool limit_reached, bool stop_asked) {
  decide(limit_reached, stop_asked);
  last_ = true;
}

}  // namespace composer
