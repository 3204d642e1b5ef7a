#pragma once
#include <cstdint>

namespace composer::profiler {

// What is done with a batch.
enum class Action : std::uint8_t { SKIP, WARMUP, ACTIVE, ACTIVE_AND_SAVE };

// Which batches of each epoch are recorded. After skip_first batches follow cycles of wait batches, warmup batches, for
// which recording is made ready, and active batches, which are recorded. The last of them ends a trace, and so does the
// last batch of an epoch.
struct Schedule {
  std::int64_t skip_first = 0, wait = 0, warmup = 1;  // >= 0
  std::int64_t active = 4;                            // >= 1
  std::int64_t repeat = 1;                            // cycles in an epoch; 0: until its end
};

// Batches before `resumed_at`, where a run went on within its epoch, are skipped like skip_first in every epoch.
Action action_at(const Schedule& schedule, std::int64_t batch_in_epoch, std::int64_t resumed_at, bool last_of_epoch);

}  // namespace composer::profiler
