// Decides between several ways of doing the same from times that vary, on a machine that may be busy. Internal.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

namespace composer {

// Ways to be compared. The first is the one in use.
struct Contest {
  std::vector<int> changes = {};                // in how many settings each way differs from the first
  std::function<double(std::size_t way)> time;  // does it once in this way, and returns the seconds that it took
};

// The least number of rounds, then more until so many seconds have passed, but at most `most`.
struct TrialLimits {
  int least, most;
  double seconds;
};

struct Verdict {
  std::size_t way = 0;               // the fastest
  std::vector<double> seconds = {};  // of each way, the shortest
  bool disturbed = false;            // by other programs, in almost all rounds: of what would be chosen it says little
};

// Times all ways, one after the other, in rounds. Each round is in the other order than the one before, so that neither
// a machine that gets slower nor what one way leaves in the caches is taken for a difference. A way that takes half as
// long again as the fastest is left out of further rounds. Rounds in which other programs slowed this one down do not
// count, and are repeated for as many seconds as there are in `patience`, from which their time is taken.
Verdict fastest_of(const Contest& contest, const TrialLimits& limits, double& patience);

// Times work from its construction on. What one thread does is timed by the processor time of the process, if that is
// less than the time that has passed: other programs do not lengthen it. Of several threads it would say too little,
// because one that waits for another uses its processor, too.
class WorkClock {
 public:
  WorkClock();
  double seconds(bool one_thread) const;

 private:
  double wall_, processor_;
};

// Seconds that each way took in one round; infinite: it had been left out.
struct TrialRound {
  std::vector<double> seconds;
  bool disturbed = false;
};

// The way with the shortest time, by rounds that were not disturbed, if there are at least `least` of those. Another
// way than the first has to take at least 3 % less time, by the shortest times and by the median of the ratios in each
// round, and to be faster in more than three quarters of the rounds: less is within what the same way differs from
// itself. Among ways within 3 % of the fastest the one with the fewest changes is taken.
Verdict judge(const std::vector<TrialRound>& rounds, const std::vector<int>& changes, int least);

}  // namespace composer
