#pragma once
#include <cstdint>

#include "composer/core/time.h"

namespace composer::saving {

// A moment of a run, until time is reset: what follows the last batch of an epoch comes before the epoch's end, or
// after it.
struct Moment {
  std::int64_t batch = 0;
  std::int64_t ends = 0;  // how many epochs and iterations have ended
  bool operator==(const Moment&) const = default;
};

inline Moment moment_of(const Timestamp& time) { return {.batch = time.batch, .ends = time.epoch + time.iteration}; }

}  // namespace composer::saving
