#include "composer/algorithms/autocast_type.h"

#include <ATen/autocast_mode.h>

namespace composer::algorithms {

std::optional<at::ScalarType> autocast_type(const at::Tensor& input) {
  const at::DeviceType device = input.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

}  // namespace composer::algorithms
