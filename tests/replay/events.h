#pragma once
#include "tests/replay/compare.h"

namespace composer::replay {

// The deliberate differences that show in traces of events.
Rules events_rules();

// The column of a row of a trace, by name, as events.json lists them.
enum Column : std::size_t {
  EVENT,
  ITERATION,
  EPOCH,
  BATCH,
  SAMPLE,
  TOKEN,
  EPOCH_IN_ITERATION,
  TOKEN_IN_ITERATION,
  BATCH_IN_EPOCH,
  SAMPLE_IN_EPOCH,
  TOKEN_IN_EPOCH,
  DATALOADER_LABEL,
  DATALOADER_LEN,
  PHASE_BATCH,
  PHASE_SAMPLE,
  PHASE_TOKEN,
  BATCH_NUM_SAMPLES,
  MODEL_TRAINING,
  MAX_DURATION,
  LR
};

}  // namespace composer::replay
