#pragma once
#include <cstdint>
#include <string>

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include "composer/core/tensors.h"
#include "composer/step/feed.h"
#include "composer/step/memory_budget.h"
#include "composer/step/microbatch_size.h"

namespace composer {

// How much of a batch an evaluator takes at once. If the size is "auto", it is the whole batch until memory is short,
// from then on half of what was too much, and it never grows again.
class EvalMicrobatch {
 public:
  EvalMicrobatch() = default;
  EvalMicrobatch(std::string label, MicrobatchSize size, std::int64_t bytes);

  bool is_auto() const { return is_auto_; }
  void begin(at::Device device);  // an evaluation

  using Use = c10::function_ref<void(Batch part)>;
  using Undo = c10::function_ref<void()>;
  // Calls `use` with all of the batch, part after part. If the size is "auto", a part that is out of memory is undone,
  // and used again in smaller parts. Throws Error with the out-of-memory error nested if the part has one sample.
  void for_each_part(const Feed& feed, const Batch& batch, at::Device device, Use use, Undo undo);

 private:
  bool fits(const Feed& feed, const Batch& part, at::Device device, Use use);

  std::string label_;
  std::int64_t size_ = 0;  // samples; 0: the whole batch
  bool is_auto_ = false;
  MemoryBudget budget_;  // of a part, on a CPU; measured when an evaluation begins
};

}  // namespace composer
