#include "composer/device/cuda/peak_flops.h"

#include <algorithm>
#include <array>
#include <string>

#include "composer/util/letters.h"

namespace composer::cuda {
namespace {

struct KnownDevice {
  std::array<std::string_view, 2> parts;  // parts of the device's name in lower case; one may be empty
  double fp32, tf32, fp16, bf16;          // 0: not supported
};

// The first match counts. The numbers are from the makers' data sheets, without sparsity.
constexpr std::array kDevices = {
    KnownDevice{{"b200", ""}, 75e12, 1.125e15, 2.25e15, 2.25e15},
    KnownDevice{{"h200", ""}, 67e12, 494.5e12, 989.5e12, 989.5e12},
    KnownDevice{{"h100", "hbm3"}, 67e12, 494.5e12, 989.5e12, 989.5e12},
    KnownDevice{{"h100", "pcie"}, 51e12, 378e12, 756.5e12, 756.5e12},
    KnownDevice{{"h100", "hbm2e"}, 51e12, 378e12, 756.5e12, 756.5e12},
    KnownDevice{{"a100", ""}, 19.5e12, 156e12, 312e12, 312e12},
    KnownDevice{{"a10g", ""}, 31.5e12, 35e12, 70e12, 70e12},
    KnownDevice{{"a10", ""}, 31.2e12, 62.5e12, 125e12, 125e12},
    KnownDevice{{"l40s", ""}, 91.6e12, 183e12, 362e12, 362e12},
    KnownDevice{{"l4", ""}, 30.3e12, 60e12, 121e12, 121e12},
    KnownDevice{{"v100s", ""}, 16.4e12, 0, 130e12, 0},
    KnownDevice{{"v100", "sxm"}, 15.7e12, 0, 125e12, 0},
    KnownDevice{{"v100", "pcie"}, 14e12, 0, 112e12, 0},
    KnownDevice{{"t4", ""}, 8.1e12, 0, 65e12, 0},
};

// Whether a word of the name begins with the part: "l4" is in "nvidia l4", but neither in "nvidia l40" nor in "xl4".
bool has(std::string_view name, std::string_view part) {
  for (std::size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    const bool begins = at == 0 || !util::is_letter_or_digit(name[at - 1]);
    const bool ends = end == name.size() || !util::is_letter_or_digit(name[end]) || part == "sxm";  // "sxm2"
    if (begins && ends) return true;
  }
  return part.empty();
}

double peak_of(const KnownDevice& device, Precision precision, bool tf32) {
  switch (precision) {
    case Precision::FP32:
      return tf32 && device.tf32 > 0 ? device.tf32 : device.fp32;
    case Precision::AMP_BF16:
      return device.bf16;
    case Precision::AMP_FP16:
      return device.fp16;
  }
  return 0;
}

}  // namespace

std::optional<double> peak_flops(std::string_view device_name, Precision precision, bool tf32) {
  const std::string name = util::lower(device_name);
  for (const KnownDevice& device : kDevices) {
    if (!has(name, device.parts[0]) || !has(name, device.parts[1])) continue;
    const double peak = peak_of(device, precision, tf32);
    return peak > 0 ? std::optional(peak) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace composer::cuda
