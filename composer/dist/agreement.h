// Comparisons between ranks, and what they have in common. Internal.
#pragma once
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer::dist {

class World;

// The properties of a tensor that must be equal on all ranks: "fc.weight: Float [10, 5]".
std::string describe_tensor(const std::string& name, const at::Tensor& tensor);

// Throws ConfigError on all ranks if a rank has other lines than rank 0. The error has both texts of the first
// difference. A collective.
void check_same_on_all_ranks(World& world, const std::string& who, const std::vector<std::string>& lines);

// Advice for an error that says that ranks train different things.
inline constexpr const char* kOneForAll =
    ". What each rank computes for itself must be the same on all: look at algorithms, callbacks, schedules and "
    "optimizers of your own that ask for the rank, and go on from a checkpoint that was written before";

// For each parameter, whether any rank has a gradient for it. A collective.
std::vector<bool> have_gradients(World& world, const std::vector<at::Tensor>& parameters);

}  // namespace composer::dist
