#include "composer/trainer/events.h"

#include <exception>

#include "composer/core/error.h"

namespace composer {

void Events::Opened::cut_short() {
  open_ = false;
  try {
    events_.fire(closes_);
  } catch (const std::exception& error) {
    warn(join("after a signal: ", describe(error)));
  }
}

}  // namespace composer
