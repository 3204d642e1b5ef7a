#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer {

// Yields batches epoch by epoch. seek() sets the position (epoch, batch) and next() advances it. A batch depends only
// on its position, so a resumed run gets exactly the batches that it has not trained on.
class COMPOSER_EXPORT Loader {
 public:
  virtual ~Loader();
  // The next call of next() yields this batch of this epoch, both counted from 0. Must be O(1).
  virtual void seek(std::int64_t epoch, std::int64_t batch) = 0;
  virtual std::optional<Batch> next() = 0;                  // nullopt: the epoch has ended
  virtual std::optional<std::int64_t> num_batches() const;  // per epoch; nullopt (the default): unknown
  // Number of samples in all batches but the last; nullopt: unknown.
  virtual std::optional<std::int64_t> batch_size() const;
  // The indices in the data set of the samples in this batch, in their order; empty (the default): unknown.
  virtual std::vector<std::int64_t> sample_indices(std::int64_t epoch, std::int64_t batch) const;
  // The trainer calls this with the run's seed before seek(). A random loader uses it if its options set no seed. A
  // loader that wraps another passes the call on. The default does nothing.
  virtual void set_default_seed(std::uint64_t seed);
};

}  // namespace composer
