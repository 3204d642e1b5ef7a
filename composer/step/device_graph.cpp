#include "composer/step/device_graph.h"

#include <map>
#include <mutex>
#include <utility>

namespace composer {
namespace {

// Trainers on several threads ask it.
class Registry {
 public:
  static Registry& instance() {
    static Registry all;
    return all;
  }
  MakeDeviceGraph find(at::DeviceType type) {
    const std::lock_guard lock(mutex_);
    const auto it = all_.find(type);
    return it == all_.end() ? MakeDeviceGraph() : it->second;
  }
  MakeDeviceGraph exchange(at::DeviceType type, MakeDeviceGraph make) {
    const std::lock_guard lock(mutex_);
    return std::exchange(all_[type], std::move(make));
  }

 private:
  std::mutex mutex_;
  std::map<at::DeviceType, MakeDeviceGraph> all_{{at::kCUDA, cuda_graphs()}};
};

}  // namespace

MakeDeviceGraph device_graphs(at::DeviceType type) { return Registry::instance().find(type); }

MakeDeviceGraph exchange_device_graphs(at::DeviceType type, MakeDeviceGraph make) {
  return Registry::instance().exchange(type, std::move(make));
}

}  // namespace composer
