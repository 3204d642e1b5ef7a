#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "composer/trainer/evaluations.h"

namespace composer {

class Ranks;
struct State;

// Evaluators as a trainer runs them: what one of them leaves open is `interval`, `subset_num_batches`, and the metrics
// of the model. `memory`: bytes that a batch may take where microbatches are "auto".
std::vector<EvalRun> eval_runs(const Evaluators& evaluators, const Interval& interval, std::int64_t subset_num_batches,
                               const State& state, const Ranks& ranks, std::int64_t memory);

std::vector<std::string> labels_of(const std::vector<EvalRun>& runs);

}  // namespace composer
