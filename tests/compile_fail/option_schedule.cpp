// error: a schedule is a function double
#include <vector>

#include "composer/optim/schedule.h"

struct Options {
  std::vector<composer::optim::Scheduler> schedulers = {};
};
struct Run {
  explicit Run(Options options);
  Run(Run&&) noexcept;
};
Run run({.schedulers = {[](composer::Time) { return 0.5; }}});
