// Compares options over ranks, so that no rank waits for a message that another rank does not send, and the weights of
// ranks stay equal. Each function throws ConfigError on all ranks, with the first difference, if their options differ.
// Internal.
#pragma once
#include <cstdint>
#include <vector>

#include "composer/trainer/fit_history.h"

namespace composer {

struct EvalRun;
struct FitPlan;
struct InRun;
struct State;
struct TrainerOptions;
class Feed;
class KeptSettings;
class MetricSet;
class Ranks;

// Called before INIT. Compares what is loaded, what algorithms do at INIT, and options that rank 0 evaluates for all
// ranks. A rank may leave those options to rank 0.
void check_same_options(const Ranks& ranks, const TrainerOptions& options, const InRun& run);

// Compares which of the program's fits is called, and what is left of it. Otherwise a rank whose fit returns at once
// would leave the others alone.
void check_same_fit(const Ranks& ranks, FitHistory::Remaining remaining, std::int64_t number);

// What the ranks are about to train. The plan lacks what is unchanged.
struct Planned {
  const TrainerOptions& options;
  const State& state;
  const MetricSet& metrics;  // of training
  const std::vector<EvalRun>& runs;
  const KeptSettings& settings;
  bool saved_by_all;  // whether a checkpoint needs all ranks
};
void check_same_plan(const Ranks& ranks, const FitPlan& plan, const Planned& planned);

void check_same_evaluation(const Ranks& ranks, const std::vector<EvalRun>& runs, std::int64_t subset_num_batches);
void check_same_prediction(const Ranks& ranks, const Feed& feed);

}  // namespace composer
