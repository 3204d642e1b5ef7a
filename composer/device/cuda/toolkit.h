#pragma once
// What takes the headers of CUDA to build: toolkit.cpp, or no_toolkit.cpp where they are missing.
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "composer/device/device_graph.h"

namespace composer::cuda {

bool has_toolkit();
std::unique_ptr<DeviceGraph> make_graph();  // null without the headers

// The GPU as its maker names it: "NVIDIA H200, 132 multiprocessors". "cuda:0" without the headers.
std::string name_of_gpu(at::Device device);

}  // namespace composer::cuda
