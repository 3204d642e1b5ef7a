#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "composer/core/metric.h"

namespace composer::saving {

// What to do when a checkpoint cannot be written. Earlier checkpoints are kept in any case.
enum class OnFailure : std::uint8_t {
  FAIL,      // the run ends with the error
  RETRY,     // up to three times more, after 1, 2 and 4 seconds; then as FAIL
  CONTINUE,  // warn, and train on without this checkpoint
};

// Of the checkpoints whose weights the metric was measured on.
struct Best {
  std::string metric;                 // as label/name: "eval/MulticlassAccuracy"
  std::optional<Better> better = {};  // unset: as the metric declares, else by its name

  static constexpr const char* kLink = "best";  // beside the link to the newest, where there is one
};

}  // namespace composer::saving
