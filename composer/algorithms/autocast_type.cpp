#include "composer/algorithms/autocast_type.h"

#include "composer/util/autocast.h"

namespace composer::algorithms {

std::optional<at::ScalarType> autocast_type(const at::Tensor& input) {
  return composer::autocast_type(input.device().type());
}

}  // namespace composer::algorithms
