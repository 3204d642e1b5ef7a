#include "composer/device/cpu/cpu.h"

#include <fstream>
#include <string_view>

namespace composer {

std::string CpuSupport::name_of(at::Device /*device*/) const {
  std::ifstream info("/proc/cpuinfo");
  constexpr std::string_view kName = "model name";
  for (std::string line; std::getline(info, line);)
    if (line.starts_with(kName))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown";
}

c10::DeviceAllocator* CpuSupport::allocator(at::Device /*device*/) const { return nullptr; }

}  // namespace composer
