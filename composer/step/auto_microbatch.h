#pragma once
#include <cstdint>
#include <functional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/state.h"
#include "composer/step/memory_budget.h"

namespace composer {

class BatchUndo;

// The size of microbatches, if it is "auto": predicted from two trials when training begins, halved whenever memory
// turns out to be short, never larger again. It is kept in state.device_train_microbatch_size.
class AutoMicrobatch {
 public:
  // `bytes` that a batch may allocate; 0: what the device has left when the first batch is there. `put_batch_back` lets
  // go of what an attempt has made of state.batch.
  AutoMicrobatch(State& state, std::int64_t bytes, std::function<void()> put_batch_back)
      : state_(state), budget_(bytes), put_batch_back_(std::move(put_batch_back)) {}

  void begin_batch(std::int64_t samples) { samples_ = samples; }
  bool has_size() const { return state_.device_train_microbatch_size > 0; }
  // Trains microbatches of the sizes it is called with. No trace of it is left.
  using Trial = std::function<void(std::int64_t size)>;
  void choose(const Trial& trial);

  using Gradients = std::function<at::Tensor()>;
  using Step = std::function<void(const Gradients& gradients)>;
  // Calls `step` with `gradients`, and again, after `split`, with smaller microbatches if memory is short for them.
  // Without `split` there is no way back: other ranks are waiting for the gradients of this one. Throws Error with the
  // out-of-memory error nested if the size is 1.
  void fit(const Step& step, const Gradients& gradients, const std::function<void()>& split);

 private:
  std::int64_t fitting_size(const Trial& trial);
  std::int64_t limit();
  void shrink();
  void take_back(BatchUndo& undo) const;

  State& state_;
  MemoryBudget budget_;  // for what a batch allocates
  std::function<void()> put_batch_back_;
  std::int64_t samples_ = 0;  // of the batch
};

}  // namespace composer
