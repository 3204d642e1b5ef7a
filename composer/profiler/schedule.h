#pragma once
#include <cstdint>

namespace composer::profiler {

// What the profiler does with a batch.
enum class Action : std::uint8_t { SKIP, WARMUP, ACTIVE, ACTIVE_AND_SAVE };

// Which batches of each epoch are recorded. The first skip_first batches are skipped. Then follow cycles of `wait`
// batches that are skipped, `warmup` batches that prepare the recording, and `active` batches that are recorded. The
// last active batch ends a trace, and so does the last batch of an epoch.
struct Schedule {
  std::int64_t skip_first = 0, wait = 0, warmup = 1;  // >= 0
  std::int64_t active = 4;                            // >= 1
  std::int64_t repeat = 1;                            // cycles in an epoch; 0: until its end
};

// Batches before `resumed_at`, where a resumed run continues within its epoch, are skipped like skip_first in every
// epoch.
Action action_at(const Schedule& schedule, std::int64_t batch_in_epoch, std::int64_t resumed_at, bool last_of_epoch);

}  // namespace composer::profiler
