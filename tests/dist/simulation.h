#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "composer/dist/failure_detector.h"

// Ranks with failure detectors on a simulated clock, network and store. Every delay is drawn from a seed, so a schedule
// can be repeated.
namespace composer::dist::simulation {

using Time = FailureDetector::Time;

struct Fault {
  enum Kind {
    KILL,       // the process ends, its connections break at once
    STOP,       // it stands still for `length`
    FAIL,       // it ends with an error and says so
    CUT,        // nothing that it sends arrives any more, nor what is sent to it
    LOSE_STORE  // the launcher that serves the store ends
  };
  Kind kind = KILL;
  int rank = 0;
  Time at{0}, length{0};
};

struct Schedule {
  std::uint64_t seed = 0;
  int ranks = 2;
  int store_rank = 0;         // -1: a launcher
  Time slowest{50};           // the longest delay of a message to or from the store
  Time work{20000};           // when the ranks finish their work, if nothing happens
  std::vector<bool> is_busy;  // the main thread of the rank computes and reacts to nothing before it has finished
  std::vector<Fault> faults;

  std::string text() const;
};

struct End {
  enum How { NEVER, FINISHED, PEER_LOST, UNKNOWN, FORCED, DIED };
  How how = NEVER;
  Time at{0};
  int named = -2;  // by PEER_LOST and FORCED
  std::string text;
};

// How each rank ended, simulated until `limit`.
std::vector<End> simulate(const Schedule& schedule, const DetectorRules& rules, Time limit);

}  // namespace composer::dist::simulation
