#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"

namespace composer::optim {

// Throws ConfigError that begins with `who` unless the optimizer can skip its step on the device (SkippableStep).
COMPOSER_EXPORT void require_skippable(const Optimizer& optimizer, const char* who);

struct GradScalerOptions {
  double init_scale = 65536;            // > 0, finite
  double growth_factor = 2;             // >= 1; multiplies the scale after growth_interval successful steps in a row
  double backoff_factor = 0.5;          // > 0, <= 1; multiplies the scale after a step with an infinite or NaN gradient
  std::int64_t growth_interval = 2000;  // steps, >= 1
};

// Prevents gradients of half-precision losses from underflowing: losses are multiplied by a scale and gradients divided
// by it. A step whose gradients are not finite is skipped, and the scale is reduced. Everything happens on the device;
// nothing is read on the host. Call scale() for each loss, unscale() once, then step() and update().
class COMPOSER_EXPORT GradScaler {
 public:
  GradScaler(GradScalerOptions options, at::Device device);  // throws ConfigError

  at::Tensor scale(const at::Tensor& loss) const;
  // Divides the gradients of the optimizer's parameters by the scale, in place. Throws ConfigError for float16
  // gradients: the parameters must be kept in float32.
  void unscale(const Optimizer& optimizer);
  void step(Optimizer& optimizer) const;  // does nothing if unscale() found an infinity or NaN
  void update();

  // The state to save, on the device: the scale (float [1]), and the number of successful steps since it changed (int32
  // [1]).
  const at::Tensor& scale_factor() const { return scale_; }
  const at::Tensor& growth_tracker() const { return growth_tracker_; }
  void load(const at::Tensor& scale_factor, const at::Tensor& growth_tracker);
  const at::Tensor& found_inf() const { return found_inf_; }  // float [], result of the last unscale(); 0: all finite

 private:
  GradScalerOptions options_;
  at::Tensor scale_, growth_tracker_, found_inf_;
  std::vector<at::Tensor> gradients_;  // a member to reuse its capacity
};

}  // namespace composer::optim
