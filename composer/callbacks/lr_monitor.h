#pragma once
#include <string>
#include <vector>

#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/logger.h"

namespace composer::callbacks {

// Logs after each batch the learning rate of each parameter group as lr-<class of the optimizer>/group<i>: the rate
// that the next batch will be trained with.
class COMPOSER_EXPORT LRMonitor final : public Callback {
 public:
  void batch_end(const State& state, Logger& logger) override;

 private:
  std::vector<std::string> keys_;  // one per group
  std::vector<LogEntry> entries_;
};

}  // namespace composer::callbacks
