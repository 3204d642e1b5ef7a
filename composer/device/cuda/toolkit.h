#pragma once
// Functions that need CUDA's headers: toolkit.cpp, or no_toolkit.cpp where the headers are missing.
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "composer/device/device_graph.h"

namespace composer::cuda {

bool has_toolkit();
std::unique_ptr<DeviceGraph> make_graph();  // null if the headers are missing

// The maker's name for the GPU: "NVIDIA H200, 132 multiprocessors". "cuda:0" if the headers are missing.
std::string name_of_gpu(at::Device device);

}  // namespace composer::cuda
