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

// Splits the batches of an evaluator. If the size is "auto", the whole batch is used until memory runs out. From then
// on the size is half of the part that did not fit; it never grows again.
class EvalMicrobatch {
 public:
  EvalMicrobatch() = default;
  EvalMicrobatch(std::string label, MicrobatchSize size, std::int64_t bytes);

  bool is_auto() const { return is_auto_; }
  void begin(at::Device device);  // to be called when an evaluation begins

  using Use = c10::function_ref<void(Batch part)>;
  using Undo = c10::function_ref<void()>;
  // Calls `use` with all parts of the batch, one after another. If the size is "auto" and a part runs out of memory,
  // `undo` is called and the part is used again in smaller parts. Throws Error with the out-of-memory error nested if
  // the part has one sample.
  void for_each_part(const Feed& feed, const Batch& batch, at::Device device, Use use, Undo undo);

 private:
  bool fits(const Feed& feed, const Batch& part, at::Device device, Use use);

  std::string label_;
  std::int64_t size_ = 0;  // samples; 0: the whole batch
  bool is_auto_ = false;
  MemoryBudget budget_;  // for a part, on a CPU; measured when an evaluation begins
};

}  // namespace composer
