#pragma once
#include <cstdint>

namespace composer::algorithms {

// Numbers the microbatches of a batch from 0, for algorithms that draw random numbers for each.
class MicrobatchCount {
 public:
  // Call this before the first microbatch, because a batch may be trained several times.
  void restart() { batch_ = -1; }
  std::int64_t next(std::int64_t batch) {
    microbatch_ = batch == batch_ ? microbatch_ + 1 : 0;
    batch_ = batch;
    return microbatch_;
  }

 private:
  std::int64_t batch_ = -1, microbatch_ = 0;
};

}  // namespace composer::algorithms
