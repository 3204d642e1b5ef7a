#pragma once
#include <optional>

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "composer/core/state.h"

namespace composer {

// Enables autocast in this scope if the precision asks for it; does nothing for fp32.
class AutocastScope {
 public:
  AutocastScope(Precision precision, at::Device device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const std::optional<at::ScalarType> type_;  // unset: no autocast, as for fp32
  const at::DeviceType device_;
  bool was_enabled_ = false;
  at::ScalarType dtype_ = at::kFloat;  // the autocast dtype before this scope
};

// The shorter type that autocast on this thread gives the inputs of operators on such devices; unset if autocast is
// off.
std::optional<at::ScalarType> autocast_type(at::DeviceType device);

}  // namespace composer
