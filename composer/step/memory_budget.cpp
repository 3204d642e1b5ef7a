#include "composer/step/memory_budget.h"

#include <algorithm>

#include "composer/device/device_support.h"

namespace composer {

void MemoryBudget::measure(at::Device device, std::int64_t reserved) {
  if (!is_given_) bytes_ = std::max<std::int64_t>(1, device_support(device.type()).available_memory(device) - reserved);
}

}  // namespace composer
