// Chooses between several ways of doing the same work, from times that vary, on a machine that may be busy. Internal.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

namespace composer {

// The ways to be compared. The first is the current one.
struct Contest {
  std::vector<int> changes = {};                // number of settings in which each way differs from the first
  std::function<double(std::size_t way)> time;  // does the work once in this way, and returns the seconds that it took
};

// Limits the number of rounds: at least `least`, then more until `seconds` have passed, but at most `most`.
struct TrialLimits {
  int least, most;
  double seconds;
};

struct Verdict {
  std::size_t way = 0;               // the fastest
  std::vector<double> seconds = {};  // shortest time of each way
  bool disturbed = false;            // other programs disturbed almost all rounds, so the result is not reliable
};

// Times all ways, one after the other, in rounds. Each round reverses the order of the one before, so that neither a
// machine that gets slower nor what one way leaves in the caches counts as a difference. A way that takes 1.5 times as
// long as the fastest is left out of further rounds. Rounds that other programs slowed down do not count, and are
// repeated; their time is taken from `patience`, in seconds.
Verdict fastest_of(const Contest& contest, const TrialLimits& limits, double& patience);

// Times work from its construction on. Work of one thread is timed by the processor time of the process, if that is
// less than the wall time, because other programs do not lengthen processor time. For several threads, processor time
// would mislead: a thread that waits for another one uses its processor, too.
class WorkClock {
 public:
  WorkClock();
  double seconds(bool one_thread) const;

 private:
  double wall_, processor_;
};

// The seconds that each way took in one round; infinite: the way was left out.
struct TrialRound {
  std::vector<double> seconds;
  bool disturbed = false;
};

// The way with the shortest time, in rounds that were not disturbed, if there are at least `least` of them. A way other
// than the first must take at least 3 % less time, both by the shortest times and by the median of the ratios in each
// round, and must be faster in more than three quarters of the rounds: smaller differences also occur between runs of
// the same way. Among ways within 3 % of the fastest, the one with the fewest changes is chosen.
Verdict judge(const std::vector<TrialRound>& rounds, const std::vector<int>& changes, int least);

}  // namespace composer
