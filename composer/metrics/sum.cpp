#include "composer/metrics/sum.h"

#include <limits>

#include <ATen/ATen.h>

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

const at::Tensor& pick(const Outputs& outputs, const std::string& name) {
  return name.empty() ? outputs.only() : outputs.at(name);
}

}  // namespace composer::metrics
