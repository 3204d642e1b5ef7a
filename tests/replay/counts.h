#pragma once
#include <nlohmann/json.hpp>

#include "composer/core/state.h"
#include "composer/util/counts.h"

namespace composer::replay {

// The counts of a timestamp, by the names that recordings have for them.
inline nlohmann::json counts_of(const Timestamp& timestamp) {
  nlohmann::json all;
  for (const util::Count& count : util::kCounts) all[count.name] = timestamp.*count.field;
  return all;
}

// Where a run has ended, as it is recorded.
inline nlohmann::json final_of(const State& state) {
  const Timestamp& t = state.timestamp;
  return {{"iteration", t.iteration},
          {"epoch", t.epoch},
          {"batch", t.batch},
          {"sample", t.sample},
          {"token", t.token},
          {"batch_in_epoch", t.batch_in_epoch},
          {"sample_in_epoch", t.sample_in_epoch},
          {"token_in_epoch", t.token_in_epoch},
          {"max_duration", state.max_duration ? nlohmann::json(to_string(*state.max_duration)) : nlohmann::json()}};
}

}  // namespace composer::replay
