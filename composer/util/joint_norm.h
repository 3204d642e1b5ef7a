#pragma once
#include <optional>
#include <vector>

#include <c10/core/ScalarType.h>

namespace at {
class Tensor;
}

namespace composer {

// The L2 norm of all elements of one or more tensors of a device, computed in `type` or else in their own, as a tensor
// of no dimensions there: nothing waits. Equal elements of a sparse tensor count as their sum.
at::Tensor joint_norm(const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> type = std::nullopt);

}  // namespace composer
