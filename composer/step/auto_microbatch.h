#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "composer/core/state.h"
#include "composer/step/memory.h"

namespace composer {

// The size of microbatches, if it is "auto": predicted from two trials when training begins, halved whenever memory
// turns out to be short, never larger again. It is kept in state.device_train_microbatch_size.
class AutoMicrobatch {
 public:
  // `bytes` that a batch may allocate; 0: what the device has left when the first batch is there.
  AutoMicrobatch(State& state, std::int64_t bytes) : state_(state), limit_(bytes) {}

  bool has_size() const { return state_.device_train_microbatch_size > 0; }
  // Trains microbatches of the sizes it is called with, without a trace.
  using Trial = std::function<void(std::int64_t size)>;
  void choose(std::int64_t samples, const Trial& trial);
  // While an out-of-memory error is being handled. Throws Error with that one nested if the size is 1.
  void shrink(std::int64_t samples);

  std::int64_t limit() const { return limit_; }  // bytes, for what a batch allocates

 private:
  State& state_;
  std::int64_t limit_;
};

}  // namespace composer
