#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "composer/data/batch_memory.h"
#include "composer/data/map_style.h"

namespace composer::data::detail {

// Stacks the tensors of each name. Thread-safe.
class Stack {
 public:
  // Parameters as for BatchMemory.
  Stack(std::size_t keep, bool pin_memory) : keep_(keep), pin_memory_(pin_memory) {}

  // Throws DataError unless all samples have the same names, dtypes and shapes. `indices` are the indices of the
  // samples.
  Batch operator()(const std::vector<Sample>& samples, std::span<const std::int64_t> indices);

 private:
  at::Tensor stack(std::span<const at::Tensor> parts, std::size_t index);
  BatchMemory& memory(std::size_t index);

  const std::size_t keep_;
  const bool pin_memory_;
  std::mutex mutex_;                                  // guards the list
  std::vector<std::unique_ptr<BatchMemory>> memory_;  // one per name
};

}  // namespace composer::data::detail
