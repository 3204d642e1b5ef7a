#pragma once
#include "composer/util/random_state.h"

namespace composer::predict {

// In its scope, random numbers may be drawn that are none of the program's: at its end, also by an error, the
// generators of the CPU and of the device are as before.
class RandomAside {
 public:
  explicit RandomAside(at::Device device = at::kCPU) { state_.add(device); }
  ~RandomAside() { state_.restore(); }
  RandomAside(const RandomAside&) = delete;
  RandomAside& operator=(const RandomAside&) = delete;

 private:
  RandomState state_;
};

}  // namespace composer::predict
