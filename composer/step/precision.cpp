#include "composer/step/precision.h"

#include "composer/core/error.h"

namespace composer {

void check_precision(Precision precision, at::Device device) {
  if (precision == Precision::AMP_FP16 && device.is_cpu())
    throw ConfigError("precision: amp_fp16 is 50 times slower than fp32 on a CPU; use fp32 or amp_bf16");
}

}  // namespace composer
