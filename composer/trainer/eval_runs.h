#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "composer/trainer/evaluations.h"

namespace composer {

class Ranks;
struct State;

// Evaluators as a trainer runs them. An evaluator without an interval, a subset or metrics gets `interval`,
// `subset_num_batches`, and the metrics of the model. `memory`: the bytes that a batch may allocate if microbatches are
// "auto".
std::vector<EvalRun> eval_runs(const Evaluators& evaluators, const Interval& interval, std::int64_t subset_num_batches,
                               const State& state, const Ranks& ranks, std::int64_t memory);

std::vector<std::string> labels_of(const std::vector<EvalRun>& runs);

}  // namespace composer
