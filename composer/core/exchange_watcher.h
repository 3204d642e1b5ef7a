#pragma once
#include <functional>

#include "composer/core/export.h"

namespace composer {

// A Run that also derives from this makes certain calls of algorithms itself: those at an event that opens an
// evaluation or a prediction, and at the one that closes it, if the algorithm listens to both. It assumes that the
// algorithm undoes at the second event what it exchanged at the first. Nothing of the kind is assumed of other
// algorithms.
class COMPOSER_EXPORT ExchangeWatcher {
 public:
  virtual ~ExchangeWatcher();
  virtual void exchange(const std::function<void()>& apply) = 0;  // calls `apply` once
};

}  // namespace composer
