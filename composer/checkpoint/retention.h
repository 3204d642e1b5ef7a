#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/metric.h"

namespace composer::saving {

// A checkpoint written by a run.
struct Saved {
  std::string name;
  // The value of `best`, measured on its weights; NaN: none.
  double value = std::numeric_limits<double>::quiet_NaN();
  bool by_hand = false;       // written by save_checkpoint(): never deleted, and not counted
  std::int64_t batch = -1;    // -1: of before a reset of time, or written by an earlier version
  std::uint64_t weights = 0;  // version of its weights, as in Run::weights_version() of this process; 0: unknown
  bool ahead = false;         // an earlier process has written it, and this process has not come to its moment yet
  std::string id = {};        // empty: unknown
  std::optional<std::int64_t> fit = {};  // see Planned

  bool has_value() const { return !std::isnan(value); }
};

// The checkpoint with the best value, of equal values the newest. `saved` is sorted oldest first. Null: none has a
// value.
COMPOSER_EXPORT const Saved* best_of(const std::vector<Saved>& saved, Better better);

struct Retention {
  std::vector<Saved> keep;  // in the given order
  std::vector<std::string> remove;
};

// Decides which of `saved`, oldest first, are kept: `limit` of them (-1: all). These are the newest ones or, with
// `better`, those with the best values and the newest in addition. A missing value is worse than every value; of equal
// values the newest is the best.
COMPOSER_EXPORT Retention retain(std::vector<Saved> saved, std::int64_t limit, std::optional<Better> better);

}  // namespace composer::saving
