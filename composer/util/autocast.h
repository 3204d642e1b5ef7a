#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "composer/core/state.h"

namespace composer {

// Autocast of what runs in this scope, if the precision asks for it; nothing for fp32.
class AutocastScope {
 public:
  AutocastScope(Precision precision, at::Device device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const bool active_;
  const at::DeviceType device_;
  bool was_enabled_ = false;
  at::ScalarType dtype_ = at::kFloat;  // before
};

}  // namespace composer
