#include "composer/step/device_graph.h"

#include <map>
#include <utility>

namespace composer {
namespace {

MakeDeviceGraph& entry(at::DeviceType type) {
  static std::map<at::DeviceType, MakeDeviceGraph> all{{at::kCUDA, cuda_graphs()}};
  return all[type];
}

}  // namespace

MakeDeviceGraph device_graphs(at::DeviceType type) { return entry(type); }

MakeDeviceGraph exchange_device_graphs(at::DeviceType type, MakeDeviceGraph make) {
  return std::exchange(entry(type), std::move(make));
}

}  // namespace composer
