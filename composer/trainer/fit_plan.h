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

// Everything that a fit will change, computed before anything is changed.
struct FitPlan {
  Feed feed;
  Timestamp from;
  OptionalTime until, goal;  // `goal` lacks the changes that are for this fit only
  Timestamp counted_from;    // the start of its duration
  bool reset_time = false;
  Precision precision = Precision::FP32;
  std::optional<MicrobatchSize> microbatch_size;
  std::vector<EvalRun> evaluators;  // empty: unchanged
  LearningRates rates;
  std::optional<MetricSet> metrics;  // unset: unchanged
  Fit::Holds holds;
};

}  // namespace composer
