#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "composer/checkpoint/save_options.h"
#include "composer/core/export.h"

namespace composer::saving {

// A checkpoint written by a run.
struct Saved {
  std::string name;
  double value = 0;      // value of the metric of `best`; 0 without one
  bool by_hand = false;  // written by save_checkpoint(): never deleted, and not counted

  bool operator==(const Saved&) const = default;
};

struct Retention {
  std::vector<Saved> keep;  // in the given order
  std::vector<std::string> remove;
};

// Decides which of `saved`, oldest first, are kept: `limit` of them (-1: all). These are the newest ones or, with
// `best`, the newest one and those with the best values. NaN is worse than every number.
COMPOSER_EXPORT Retention retain(std::vector<Saved> saved, std::int64_t limit, const std::optional<Best>& best);

}  // namespace composer::saving
