#pragma once
#include <cstdint>

#include "composer/core/time.h"

namespace composer::saving {

// A moment of a run, valid until time is reset. Tells whether the end of an epoch after its last batch has already been
// counted.
struct Moment {
  std::int64_t batch = 0;
  std::int64_t ends = 0;  // number of epochs and iterations that have ended
  bool operator==(const Moment&) const = default;
};

inline Moment moment_of(const Timestamp& time) { return {.batch = time.batch, .ends = time.epoch + time.iteration}; }

}  // namespace composer::saving
