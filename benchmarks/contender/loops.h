#pragma once
// The loops that are compared. Each trains a new network on the same batches.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/contender/workload.h"

namespace composer::bench {

class Loop {
 public:
  virtual ~Loop() = default;
  virtual void start() = 0;  // creates what training needs in addition to the data
  virtual void run(std::int64_t steps) = 0;
  virtual const torch::nn::Module& network() const = 0;
  virtual std::int64_t data_bytes() const = 0;
  virtual std::vector<std::string> notes() const { return {}; }
};

// Written like the programs among PyTorch's C++ examples.
std::unique_ptr<Loop> like_the_examples(Workload workload);
// Written for speed with libtorch alone.
std::unique_ptr<Loop> by_hand(Workload workload);

struct TrainedOptions {
  bool callbacks = false;  // ten callbacks, and a logger in memory
  bool tune = false;
  bool allow_bf16 = false;
};
std::unique_ptr<Loop> trained(Workload workload, TrainedOptions options);

}  // namespace composer::bench
