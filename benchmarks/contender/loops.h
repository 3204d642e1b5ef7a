#pragma once
// The loops that are compared. Each trains a fresh network on the same batches.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/contender/workload.h"

namespace composer::bench {

class Loop {
 public:
  virtual ~Loop() = default;
  virtual void start() = 0;  // makes what training needs besides the data
  virtual void run(std::int64_t steps) = 0;
  virtual const torch::nn::Module& network() const = 0;
  virtual std::int64_t data_bytes() const = 0;
  virtual std::vector<std::string> notes() const { return {}; }
};

// Shaped after the programs among PyTorch's C++ examples.
std::unique_ptr<Loop> like_the_examples(Workload workload);
// With libtorch alone, by somebody who measures.
std::unique_ptr<Loop> by_hand(Workload workload);

struct TrainedOptions {
  bool callbacks = false;  // ten of them, and a logger in memory
  bool tune = false;
  bool allow_bf16 = false;
};
std::unique_ptr<Loop> trained(Workload workload, TrainedOptions options);

}  // namespace composer::bench
