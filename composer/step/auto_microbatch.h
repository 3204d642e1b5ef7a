#pragma once
#include <cstdint>
#include <functional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/state.h"
#include "composer/step/memory_budget.h"

namespace composer {

class BatchUndo;

// The size of microbatches, if it is "auto". It is predicted from two trials when training begins, and halved whenever
// memory runs out; it never grows again. It is stored in state.device_train_microbatch_size.
class AutoMicrobatch {
 public:
  // `bytes`: the memory that a batch may allocate; 0: what is free on the device when the first batch is there.
  // `put_batch_back` restores state.batch after an attempt.
  AutoMicrobatch(State& state, std::int64_t bytes, std::function<void()> put_batch_back)
      : state_(state), budget_(bytes), put_batch_back_(std::move(put_batch_back)) {}

  void begin_batch(std::int64_t samples) { samples_ = samples; }
  bool has_size() const { return state_.device_train_microbatch_size > 0; }
  // Trains microbatches of the given size. choose() undoes all of its effects.
  using Trial = std::function<void(std::int64_t size)>;
  void choose(const Trial& trial);

  using Gradients = std::function<at::Tensor()>;
  using Step = std::function<void(const Gradients& gradients)>;
  // Calls `step` with `gradients`. If memory runs out, calls `split` and then `step` again, with smaller microbatches.
  // Without `split`, the error is passed on, because other ranks are waiting for the gradients of this one. Throws
  // Error with the out-of-memory error nested if the size is 1.
  void fit(const Step& step, const Gradients& gradients, const std::function<void()>& split);

 private:
  std::int64_t fitting_size(const Trial& trial);
  std::int64_t limit();
  void shrink();
  void take_back(BatchUndo& undo) const;

  State& state_;
  MemoryBudget budget_;  // for the allocations of a batch
  std::function<void()> put_batch_back_;
  std::int64_t samples_ = 0;  // of the current batch
};

}  // namespace composer
