#include <c10/core/Device.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"

namespace composer::dist {

void World::use_device(at::Device device) {
  if (is_alone() || device.is_cpu()) return;
  throw ConfigError("device: several processes train on CPUs only so far, and rank ", rank(), " is to train on ",
                    device, "; set .device to at::kCPU");
}

}  // namespace composer::dist
