// In the place of cuda_graph.cpp where there is no CUDA to build it with.
#include "composer/step/device_graph.h"

namespace composer {

MakeDeviceGraph cuda_graphs() { return {}; }

std::string name_of_gpu(at::Device device) { return device.str(); }

}  // namespace composer
