// Replaces toolkit.cpp in builds without CUDA.
#include "composer/device/cuda/toolkit.h"

namespace composer::cuda {

bool has_toolkit() { return false; }

std::unique_ptr<DeviceGraph> make_graph() { return nullptr; }

std::string name_of_gpu(at::Device device) { return device.str(); }

}  // namespace composer::cuda
