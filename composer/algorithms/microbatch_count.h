#pragma once
#include <cstdint>

namespace composer::algorithms {

// Numbers the microbatches of a batch from 0, for algorithms that draw random numbers for each.
class MicrobatchCount {
 public:
  void restart() { batch_ = -1; }  // to be called before the first microbatch: a batch may be trained several times
  std::int64_t next(std::int64_t batch) {
    microbatch_ = batch == batch_ ? microbatch_ + 1 : 0;
    batch_ = batch;
    return microbatch_;
  }

 private:
  std::int64_t batch_ = -1, microbatch_ = 0;
};

}  // namespace composer::algorithms
