#pragma once
#include "composer/core/export.h"

namespace composer {

// When several processes train together, the loggers of rank 0 alone get records and events, so that nothing is written
// twice. A logger that derives from this as well works on every rank; it writes a file of its own by rank, say.
class COMPOSER_EXPORT ForAllRanks {
 public:
  virtual ~ForAllRanks();
};

}  // namespace composer
