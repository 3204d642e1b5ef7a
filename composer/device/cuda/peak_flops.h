#pragma once
// Peak rates of NVIDIA's GPUs.
#include <optional>
#include <string_view>

#include "composer/core/state.h"

namespace composer::cuda {

// Dense floating-point operations per second of the device with this name, such as "NVIDIA H100 80GB HBM3"; nullopt if
// the device is not in the table. `tf32`: products of floats may use TF32.
std::optional<double> peak_flops(std::string_view device_name, Precision precision, bool tf32);

}  // namespace composer::cuda
