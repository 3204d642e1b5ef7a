// What ranks compare, so that none waits for a message that another does not send, and their weights stay equal. Each
// function throws ConfigError on all ranks, with the first difference, if they are told to do different things.
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

// Before INIT: what is loaded, what algorithms do there, and what rank 0 makes of its options for all. A rank may leave
// that to rank 0.
void check_same_options(const Ranks& ranks, const TrainerOptions& options, const InRun& run);

// Which of the program's fits is called, and what is left of it: else those that return at once leave the others alone.
void check_same_fit(const Ranks& ranks, FitHistory::Remaining remaining, std::int64_t number);

// What the ranks are about to train; the plan leaves out what stays as it is.
struct Planned {
  const TrainerOptions& options;
  const State& state;
  const MetricSet& metrics;  // of training
  const std::vector<EvalRun>& runs;
  const KeptSettings& settings;
  bool saved_by_all;  // checkpoints need all ranks
};
void check_same_plan(const Ranks& ranks, const FitPlan& plan, const Planned& planned);

void check_same_evaluation(const Ranks& ranks, const std::vector<EvalRun>& runs, std::int64_t subset_num_batches);
void check_same_prediction(const Ranks& ranks, const Feed& feed);

}  // namespace composer
