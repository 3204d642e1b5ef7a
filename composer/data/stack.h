#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "composer/data/batch_memory.h"
#include "composer/data/map_style.h"

namespace composer::data::detail {

// Puts the tensors of each name side by side. May be called from several threads at once.
class Stack {
 public:
  // As BatchMemory.
  Stack(std::size_t keep, bool pin_memory) : keep_(keep), pin_memory_(pin_memory) {}

  // Throws DataError unless all samples have the same names, types and shapes; `indices` tells which they are.
  Batch operator()(const std::vector<Sample>& samples, std::span<const std::int64_t> indices);

 private:
  at::Tensor stack(std::span<const at::Tensor> parts, std::size_t place);
  BatchMemory& memory(std::size_t place);

  const std::size_t keep_;
  const bool pin_memory_;
  std::mutex mutex_;                                  // of the list
  std::vector<std::unique_ptr<BatchMemory>> memory_;  // for each name
};

}  // namespace composer::data::detail
