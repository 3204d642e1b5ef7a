// The list of supported devices: each has a folder, and a line here.
#include <array>
#include <atomic>

#include "composer/device/cpu/cpu.h"
#include "composer/device/cuda/cuda.h"
#include "composer/device/device_support.h"

namespace composer {
namespace {

// Called in each step, so it takes no lock.
class Registry {
 public:
  Registry() {
    put(at::kCPU, new CpuSupport);
    put(at::kCUDA, new CudaSupport);
  }

  // Never destroyed: a trainer may be a global, which is destroyed later.
  static Registry& instance() {
    static auto* const all = new Registry;
    return *all;
  }

  const DeviceSupport& find(at::DeviceType type) const {
    const DeviceSupport* const found = all_.at(static_cast<std::size_t>(type));
    return found ? *found : others_;
  }
  const DeviceSupport* put(at::DeviceType type, const DeviceSupport* support) {
    return all_.at(static_cast<std::size_t>(type)).exchange(support);
  }

  std::optional<at::DeviceType> available() const {
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (const DeviceSupport* const one = all_[i]; one && one->is_available()) return static_cast<at::DeviceType>(i);
    return std::nullopt;
  }

 private:
  std::array<std::atomic<const DeviceSupport*>, at::COMPILE_TIME_MAX_DEVICE_TYPES> all_{};
  const DeviceSupport others_;
};

}  // namespace

const DeviceSupport& device_support(at::DeviceType type) { return Registry::instance().find(type); }

std::optional<at::DeviceType> available_accelerator() { return Registry::instance().available(); }

const DeviceSupport* exchange_device_support(at::DeviceType type, const DeviceSupport* support) {
  return Registry::instance().put(type, support);
}

}  // namespace composer
