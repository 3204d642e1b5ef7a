#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/tensors.h"

namespace composer {

class Ranks;

// What a model returned for a batch of a prediction.
struct PredictedBatch {
  Outputs outputs = {};     // empty where this rank had no sample
  at::Tensor samples = {};  // [samples], int64: their indices in the data set, or -1 where they are unknown
};

// `indices` is empty if they are unknown.
PredictedBatch predicted(Outputs outputs, std::int64_t samples, const std::vector<std::int64_t>& indices);

struct JoinedOutputs {
  Outputs outputs = {};
  bool in_data_order = false;
};

// Joins what a model returned for the batches of a prediction to one row for each sample, on all ranks. If the indices
// of the samples are known, and each of 0, 1, 2... is there once, the rows are in their order. Otherwise: batch by
// batch, and within a batch rank by rank, which is the order of the loader; where each rank reads batches of its own,
// rank by rank. `batches` has an entry for each batch of this rank. Throws DataError for tensors that do not have a row
// for each sample, or whose rows differ in shape or dtype.
JoinedOutputs joined_outputs(const Ranks& ranks, std::vector<PredictedBatch> batches);

}  // namespace composer
