#pragma once
#include <functional>

#include "composer/core/export.h"

namespace composer {

// A Run that derives from this as well makes the calls of an algorithm at an event that opens an evaluation or a
// prediction, and at the one that closes it, if the algorithm acts at both: what it exchanges at the first, it puts
// back at the second. Of all others nothing of the kind is known.
class COMPOSER_EXPORT ExchangeWatcher {
 public:
  virtual ~ExchangeWatcher();
  virtual void exchange(const std::function<void()>& apply) = 0;  // calls it, once
};

}  // namespace composer
