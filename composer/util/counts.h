#pragma once
#include <cstdint>

#include "composer/core/time.h"

namespace composer::util {

// The counts of a timestamp, with their names in manifests and in names of checkpoints.
struct Count {
  const char* name;
  std::int64_t Timestamp::*field;
  bool total;     // counts from the start of training: larger means later
  bool in_names;  // usable as a placeholder, {epoch}
};
constexpr Count kCounts[] = {{"iteration", &Timestamp::iteration, true, false},
                             {"epoch", &Timestamp::epoch, true, true},
                             {"batch", &Timestamp::batch, true, true},
                             {"sample", &Timestamp::sample, true, true},
                             {"token", &Timestamp::token, true, true},
                             {"batch_in_epoch", &Timestamp::batch_in_epoch, false, true},
                             {"sample_in_epoch", &Timestamp::sample_in_epoch, false, true},
                             {"token_in_epoch", &Timestamp::token_in_epoch, false, true}};

}  // namespace composer::util
