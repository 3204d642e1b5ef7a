#pragma once
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer {

// An algorithm or a callback that also derives from this can reject its state in a checkpoint before any part of the
// checkpoint, such as the weights, is loaded.
class COMPOSER_EXPORT LoadCheck {
 public:
  virtual ~LoadCheck();

  // `saved` is what visit_state() has saved. Throws CheckpointError to reject it; must not change anything.
  virtual void check_load(const StateDict& saved) const = 0;
};

}  // namespace composer
