#pragma once
#include <cstdint>
#include <optional>

#include "composer/core/event.h"
#include "composer/core/interval.h"
#include "composer/core/time.h"

namespace composer {

// Where a run is, and what that means: values, nothing here changes anything.
struct Progress {
  Timestamp now;
  std::optional<Timestamp> previous;         // before the last batch, epoch or iteration was counted
  OptionalTime limit;                        // unset: the run lasts until its caller ends it
  OptionalTime iteration_length;             // in epochs or tokens; unset: no iteration ends
  std::optional<std::int64_t> epoch_length;  // in batches; unset: unknown, or no epoch ends

  bool limit_reached() const { return limit && now.reached(*limit); }
  bool epoch_is_complete() const;  // all its batches are counted, and the epoch is not
  bool token_iteration_is_over() const;
  bool epoch_iteration_is_over() const;
  bool iteration_is_over() const { return token_iteration_is_over() || epoch_iteration_is_over(); }

  // The epoch that a loader is asked for. An iteration of tokens begins the loader anew, in the order of an epoch that
  // nobody has trained yet: each epoch and each iteration that has ended counts.
  std::int64_t loader_epoch() const;
  // What has just ended, of which intervals tell whether they are due. Something has been counted.
  IntervalMoment moment_of(Event event, std::optional<std::int64_t> dataloader_len) const;
};

}  // namespace composer
