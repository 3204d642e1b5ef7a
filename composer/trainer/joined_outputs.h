#pragma once
#include <vector>

#include "composer/core/tensors.h"

namespace composer {

class Ranks;

// Joins what a model returned for the batches of a prediction to one row for each sample, on all ranks: batch by batch,
// and within a batch rank by rank, which is the order of the samples. Where each rank reads batches of its own, rank by
// rank. `batches` has an entry for each batch of this rank, which is empty where the rank had no sample. Throws
// DataError for tensors that do not have rows, or whose rows differ in shape or dtype.
Outputs joined_outputs(const Ranks& ranks, std::vector<Outputs> batches);

}  // namespace composer
