#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer {

// What weights are used for. Training and checkpoints always use the trained weights.
enum class WeightsUse : std::uint8_t {
  EVALUATION,  // evaluation and prediction
  EXPORT       // weights for use elsewhere: Trainer::with_weights(), checkpoints of weights only
};

// Values of parameters and buffers, by their names in state_dict().
using WeightsByName = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace composer
