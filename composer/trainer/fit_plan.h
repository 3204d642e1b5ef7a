#pragma once
#include <optional>
#include <vector>

#include "composer/core/state.h"
#include "composer/core/time.h"
#include "composer/step/feed.h"
#include "composer/step/metric_set.h"
#include "composer/step/microbatch_size.h"
#include "composer/trainer/evaluations.h"
#include "composer/trainer/fit.h"
#include "composer/trainer/learning_rates.h"

namespace composer {

// What a fit will be, before anything is changed.
struct FitPlan {
  Feed feed;
  Timestamp from;
  OptionalTime until, goal;  // goal: without what only this fit makes of it
  Timestamp counted_from;    // what its duration counts from
  bool reset_time = false;
  Precision precision = Precision::FP32;
  std::optional<MicrobatchSize> microbatch_size;
  std::vector<EvalRun> evaluators;  // empty: those that there are
  LearningRates rates;
  std::optional<MetricSet> metrics;  // unset: those that there are
  Fit::Holds holds;
};

}  // namespace composer
