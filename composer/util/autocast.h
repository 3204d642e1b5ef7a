#pragma once
#include <optional>

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
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
  const std::optional<at::ScalarType> type_;  // unset: that of the weights
  const at::DeviceType device_;
  bool was_enabled_ = false;
  at::ScalarType dtype_ = at::kFloat;  // before
};

// The shorter type that autocast gives inputs on devices of this type, on this thread; nothing if autocast is off.
std::optional<at::ScalarType> autocast_type(at::DeviceType device);

}  // namespace composer
