// Which parameters a backward pass would reach. Internal.
#pragma once
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer::dist {

// The nodes of the autograd graph behind the outputs. A checkpoint() segment hides the nodes inside it.
std::unordered_set<const void*> nodes_behind(const std::vector<at::Tensor>& outputs);

}  // namespace composer::dist
