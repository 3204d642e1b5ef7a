#pragma once
#include "composer/core/export.h"

namespace composer {

// When several processes train together, the loggers of rank 0 alone get records and events, so that nothing is written
// twice. A logger that derives from this as well works on every rank, unless it says otherwise: one that writes to a
// path does so where the path tells the ranks apart.
class COMPOSER_EXPORT ForAllRanks {
 public:
  virtual ~ForAllRanks();
  virtual bool is_for_all_ranks() const;  // with the options that it has; true by default
};

}  // namespace composer
