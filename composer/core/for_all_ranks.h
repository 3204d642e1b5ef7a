#pragma once
#include "composer/core/export.h"

namespace composer {

// When several processes train together, only the loggers of rank 0 get records and events, so that nothing is written
// twice. A logger that also derives from this works on every rank, unless is_for_all_ranks() is false. A logger that
// writes to a path should return true only if the path differs between ranks.
class COMPOSER_EXPORT ForAllRanks {
 public:
  virtual ~ForAllRanks();
  virtual bool is_for_all_ranks() const;  // with its current options; true by default
};

}  // namespace composer
