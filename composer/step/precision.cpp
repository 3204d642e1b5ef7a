#include "composer/step/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include "composer/core/error.h"

namespace composer {

void check_precision(Precision precision, at::Device device) {
  if (precision == Precision::AMP_FP16 && device.is_cpu())
    throw ConfigError("precision: amp_fp16 is 50 times slower than fp32 on a CPU; use fp32 or amp_bf16");
}

AutocastScope::AutocastScope(Precision precision, at::Device device)
    : active_(precision != Precision::FP32), device_(device.type()) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  dtype_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_dtype(device_, precision == Precision::AMP_FP16 ? at::kHalf : at::kBFloat16);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, dtype_);
}

}  // namespace composer
