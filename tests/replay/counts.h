#pragma once
#include <nlohmann/json.hpp>

#include "composer/checkpoint/counts.h"

namespace composer::replay {

// The counts of a timestamp, by the names that recordings have for them.
inline nlohmann::json counts_of(const Timestamp& timestamp) {
  nlohmann::json all;
  for (const saving::Count& count : saving::kCounts) all[count.name] = timestamp.*count.field;
  return all;
}

}  // namespace composer::replay
