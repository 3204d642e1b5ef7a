#pragma once
// Training loops of one rank of several. Each rank trains batches of the same size, so the batch of all ranks grows
// with their number. Every function is called by all ranks in the same order.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmarks/contender/loops.h"
#include "composer/dist/options.h"

namespace composer::dist {
class World;
}  // namespace composer::dist

namespace composer::bench {

// Names of workloads: those of benchmarks/contender/ with small batches, 8192 samples and no dropout, and "wide", an
// MLP with 8 M parameters and little computation for each.
const std::vector<std::string>& ranked_workload_names();
Workload make_ranked_workload(const std::string& name);

// How the weights of ranks are kept equal.
enum class Reduction : std::uint8_t {
  NONE,          // not at all: each rank trains alone
  OVERLAPPED,    // DataParallel, during the backward pass
  AFTER,         // one all-reduce after the backward pass
  IN_BF16,       // DataParallel, gradients rounded to bf16
  ZERO_STAGE_1,  // DataParallel; each rank updates its share of the parameters
  ZERO_STAGE_2   // each rank gets and keeps the gradients of its share
};

class HandLoop : public Loop {
 public:
  // Trains this number of steps, and returns {"forward_s", "backward_s", "update_s"}, medians over the steps, and
  // "arrivals": [bytes, seconds since the backward pass began] for each gradient, in the order of completion.
  virtual nlohmann::ordered_json phases(std::int64_t steps) = 0;
};
// A loop by hand, like by_hand().
std::unique_ptr<HandLoop> hand_loop(Workload workload, Reduction reduction, std::shared_ptr<dist::World> world);

// The loop of the trainer. A null world means that of the process.
struct TrainerWorld {
  std::shared_ptr<dist::World> given;
  int size = 1;
  dist::DistributedOptions options = {};
};
std::unique_ptr<Loop> trainer_loop(Workload workload, TrainerWorld world);

// Replaces all gradients by their mean over ranks, in one message.
void average_in_one(dist::World& world, const std::vector<at::Tensor>& parameters);

// Measures what an all-reduce costs: {"float": [[bytes, wall seconds, CPU seconds of this process], ...], "bf16": the
// same for bf16, "copies": the same for combining gradients into a message and splitting it}. `quick`: fewer sizes and
// calls.
nlohmann::ordered_json sweep(dist::World& world, bool quick);

}  // namespace composer::bench
