#pragma once
#include <cstdint>
#include <optional>

#include "composer/core/event.h"
#include "composer/core/interval.h"
#include "composer/core/time.h"

namespace composer {

// The position of a run, and what follows from it. Values only: no function here changes anything.
struct Progress {
  Timestamp now;
  std::optional<Timestamp> previous;         // before the last batch, epoch or iteration was counted
  OptionalTime limit;                        // unset: the caller ends the run
  OptionalTime iteration_length;             // in epochs or tokens; unset: iterations do not end
  std::optional<std::int64_t> epoch_length;  // in batches; unset: unknown, or epochs do not end

  bool limit_reached() const { return limit && now.reached(*limit); }
  bool epoch_is_complete() const;  // all its batches are counted, but the epoch itself is not
  bool token_iteration_is_over() const;
  bool epoch_iteration_is_over() const;
  bool iteration_is_over() const { return token_iteration_is_over() || epoch_iteration_is_over(); }

  // The epoch number that a loader is asked for. An iteration counted in tokens restarts the loader, in an order that
  // no epoch has used before: ended epochs and ended iterations both count.
  std::int64_t loader_epoch() const;
  // The boundary that was just crossed at this event, by which intervals decide whether they are due. Requires that
  // something was counted.
  IntervalMoment moment_of(Event event, std::optional<std::int64_t> dataloader_len) const;
};

}  // namespace composer
