#pragma once
#include <memory>

#include "composer/core/callback.h"
#include "composer/core/export.h"

namespace composer::callbacks {

// Throws Error when a loss of training is NaN; infinity is let through. On the CPU right after that loss was computed.
// On another device the step never waits for it: the answer is asked for once a batch and looked at when it has
// arrived, a few batches later, and in any case at the end of the epoch.
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
  std::unique_ptr<Deferred> deferred_;  // null: everything was on the CPU so far
};

}  // namespace composer::callbacks
