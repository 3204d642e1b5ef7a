#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/dist/training.h"

namespace composer::dist::simulation {

// A training program under `composer launch --max-restarts`. Each start after those of `attempts` goes well.
struct Job {
  std::uint64_t seed = 0;
  int max_restarts = 0;
  TrainingRules training;
  std::vector<Attempt> attempts;

  std::string text() const;
};
// Random: ranks are killed, stopped, cut off, slow or fail, and some are asked to stop or get signals.
Job draw_job(std::uint64_t seed, const DetectorRules& rules);

// What the ranks or the launcher did wrong, or nothing.
std::string broken_promise(const Job& job, const DetectorRules& rules);

}  // namespace composer::dist::simulation
