#pragma once
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer {

// An algorithm or a callback that derives from this as well can refuse the state that a checkpoint has of it before any
// part of the checkpoint, such as the weights, is loaded.
class COMPOSER_EXPORT LoadCheck {
 public:
  virtual ~LoadCheck();

  // `saved` is what visit_state() has saved. Throws CheckpointError; changes nothing.
  virtual void check_load(const StateDict& saved) const = 0;
};

}  // namespace composer
