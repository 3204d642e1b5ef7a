#include "composer/util/autocast.h"

#include <ATen/autocast_mode.h>

namespace composer {

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

std::optional<at::ScalarType> autocast_type(at::DeviceType device) {
  if (!at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

}  // namespace composer
