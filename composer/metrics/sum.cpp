#include "composer/metrics/sum.h"

#include <limits>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

namespace composer::metrics {

void Sum::add(const at::Tensor& summand) {
  const at::NoGradGuard no_grad;
  const bool whole = at::isIntegralType(summand.scalar_type(), /*includeBool=*/true);
  if (!sum_.defined()) sum_ = at::zeros(summand.sizes(), summand.options().dtype(whole ? at::kLong : at::kDouble));
  sum_.add_(summand);
}

void Sum::add(std::int64_t summand, at::Device device) {
  if (!sum_.defined()) sum_ = at::zeros({}, at::TensorOptions(device).dtype(at::kLong));
  sum_.add_(summand);
}

void Sum::reset() {
  if (sum_.defined()) sum_.zero_();
}

at::Tensor Sum::value() const {
  return sum_.defined() ? sum_.to(at::kDouble)
                        : at::scalar_tensor(std::numeric_limits<double>::quiet_NaN(), at::kDouble);
}

at::Tensor count_by_class(const at::Tensor& classes, const at::Tensor& valid, std::int64_t num_classes) {
  // One more bin counts what is not valid. Unlike bincount, this reads nothing on the host.
  const at::Tensor bins = (valid.defined() ? classes.masked_fill(valid.logical_not(), num_classes) : classes).flatten();
  const at::Tensor counts = at::zeros(num_classes + 1, bins.options()).scatter_add_(0, bins, at::ones_like(bins));
  return counts.narrow(0, 0, num_classes);
}

const at::Tensor& pick(const Outputs& outputs, const std::string& name) {
  return name.empty() ? outputs.only() : outputs.at(name);
}

}  // namespace composer::metrics
