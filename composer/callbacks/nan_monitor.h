#pragma once
#include <memory>

#include "composer/core/callback.h"
#include "composer/core/export.h"

namespace composer::callbacks {

// Throws Error when a training loss is NaN; infinity is accepted. On the CPU it throws right after the loss was
// computed. On other devices the step never waits: the result is requested once per batch and checked when it has
// arrived, a few batches later, and at the end of the epoch at the latest.
class COMPOSER_EXPORT NaNMonitor final : public Callback {
 public:
  NaNMonitor();
  ~NaNMonitor() override;
  NaNMonitor(NaNMonitor&&) noexcept;

  void after_loss(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;

 private:
  struct Deferred;
  std::unique_ptr<Deferred> deferred_;  // null while all losses were on the CPU
};

}  // namespace composer::callbacks
