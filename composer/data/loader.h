#pragma once
#include <cstdint>
#include <optional>

#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer {

// Yields the batches of one epoch after another. Where it is depends on the last seek() and the calls of next() since;
// what it yields there depends on that place alone, so a run that is resumed sees the batches it has not seen.
class COMPOSER_EXPORT Loader {
 public:
  virtual ~Loader();
  // The next call of next() yields this batch of this epoch, both counted from 0. In O(1), not by reading and dropping.
  virtual void seek(std::int64_t epoch, std::int64_t batch) = 0;
  virtual std::optional<Batch> next() = 0;                  // nullopt: the epoch is over
  virtual std::optional<std::int64_t> num_batches() const;  // of an epoch; nullopt (the default): unknown
  virtual std::optional<std::int64_t> batch_size() const;   // samples in all batches but the last; nullopt: unknown
  // A trainer calls this before seek() with the run's seed. A loader that draws random numbers, and whose options set
  // no seed of their own, draws from this one; a loader that wraps another passes the call on. Does nothing by default.
  virtual void set_default_seed(std::uint64_t seed);
};

}  // namespace composer
