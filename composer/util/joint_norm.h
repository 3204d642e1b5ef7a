#pragma once
#include <optional>
#include <vector>

#include <c10/core/ScalarType.h>

namespace at {
class Tensor;
}

namespace composer {

// The L2 norm of all elements of one or more tensors of one device, computed in `type` or, if unset, in the tensors'
// own type. Returns a 0-d tensor on that device, and does not wait for it. Values of a sparse tensor at equal indices
// are added first.
at::Tensor joint_norm(const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> type = std::nullopt);

}  // namespace composer
