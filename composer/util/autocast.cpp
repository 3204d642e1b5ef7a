#include "composer/util/autocast.h"

#include <ATen/autocast_mode.h>

namespace composer {
namespace {

// The dtype for forward and loss; unset: no autocast.
std::optional<at::ScalarType> type_of(Precision precision) {
  switch (precision) {
    case Precision::FP32:
      return {};
    case Precision::AMP_BF16:
      return at::kBFloat16;
    case Precision::AMP_FP16:
      return at::kHalf;
  }
  return {};
}

}  // namespace

AutocastScope::AutocastScope(Precision precision, at::Device device)
    : type_(type_of(precision)), device_(device.type()) {
  if (!type_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  dtype_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_dtype(device_, *type_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!type_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, dtype_);
}

std::optional<at::ScalarType> autocast_type(at::DeviceType device) {
  if (!at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

}  // namespace composer
