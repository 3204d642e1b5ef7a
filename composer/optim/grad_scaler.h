#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"

namespace composer::optim {

// Throws ConfigError, in the name of `who`, unless the optimizer's step can be skipped on the device (SkippableStep).
COMPOSER_EXPORT void require_skippable(const Optimizer& optimizer, const char* who);

struct GradScalerOptions {
  double init_scale = 65536;            // > 0, finite
  double growth_factor = 2;             // >= 1; of the scale, after growth_interval good steps in a row
  double backoff_factor = 0.5;          // > 0, <= 1; of the scale, after a step with an infinite or NaN gradient
  std::int64_t growth_interval = 2000;  // steps, >= 1
};

// Keeps gradients of half-precision losses from vanishing: the loss is multiplied by a scale, the gradients divided by
// it, and a step whose gradients were not finite is skipped and makes the scale smaller. All of it happens on the
// device; nothing is read on the host. Order: scale() each loss, unscale() once, step(), update().
class COMPOSER_EXPORT GradScaler {
 public:
  GradScaler(GradScalerOptions options, at::Device device);  // throws ConfigError

  at::Tensor scale(const at::Tensor& loss) const;
  // Divides the gradients of all its parameters by the scale, in place. Throws ConfigError for float16 gradients: the
  // parameters must be kept in float32.
  void unscale(const Optimizer& optimizer);
  void step(Optimizer& optimizer) const;  // skipped if unscale() has found an infinity or NaN
  void update();

  // What a checkpoint needs, on the device: the scale (float [1]) and the good steps since it changed (int32 [1]).
  const at::Tensor& scale_factor() const { return scale_; }
  const at::Tensor& growth_tracker() const { return growth_tracker_; }
  void load(const at::Tensor& scale_factor, const at::Tensor& growth_tracker);
  const at::Tensor& found_inf() const { return found_inf_; }  // float [], of the last unscale(); 0: all were finite

 private:
  GradScalerOptions options_;
  at::Tensor scale_, growth_tracker_, found_inf_;
  std::vector<at::Tensor> gradients_;  // kept for its capacity
};

}  // namespace composer::optim
