#include "composer/callbacks/lr_monitor.h"

#include <torch/optim/optimizer.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/plugins.h"
#include "composer/core/state.h"
#include "composer/optim/any_optimizer.h"

namespace composer::callbacks {

void LRMonitor::batch_end(const State& state, Logger& logger) {
  if (!state.optimizer) return;
  const auto& optimizer = *state.optimizer;
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = keys_.size(); i < groups.size(); ++i) {
    const auto& rule = optim::rule_of(optimizer, i);
    keys_.push_back(join("lr-", class_name(typeid(rule)), "/group", i));
  }
  entries_.resize(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    entries_[i].key = keys_[i];
    entries_[i].value = groups[i].options().get_lr();
  }
  logger.log_metrics(entries_);
}

namespace entries {

Entry<Callbacks> lr_monitor() {
  return entry<LRMonitor>("lr_monitor", "Logs the learning rate of each parameter group");
}

}  // namespace entries
}  // namespace composer::callbacks
