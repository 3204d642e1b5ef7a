// What ranks have in common. Internal.
#pragma once
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer::dist {

class World;

// The properties of a tensor that must be equal on all ranks: "fc.weight: Float [10, 5]".
std::string describe_tensor(const std::string& name, const at::Tensor& tensor);

// Throws ConfigError on all ranks if one of them has other lines than rank 0, with the first difference and both texts.
// A collective.
void check_same_on_all_ranks(World& world, const std::string& who, const std::vector<std::string>& lines);

// For each parameter, whether any rank has a gradient of it. A collective.
std::vector<bool> have_gradients(World& world, const std::vector<at::Tensor>& parameters);

}  // namespace composer::dist
