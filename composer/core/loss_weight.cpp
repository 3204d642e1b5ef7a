#include "composer/core/loss_weight.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "composer/core/error.h"

namespace composer {

LossWeight::LossWeight(const at::Tensor& weight) {
  if (!weight.defined() || weight.numel() != 1)
    throw DataError("a loss's weight must be one number, got ",
                    weight.defined() ? join(weight.sizes()) : "an undefined tensor");
  if (weight.is_cpu())
    number_ = weight.item<double>();
  else
    on_device_ = weight.detach().reshape({}).to(at::kDouble);
}

LossWeight LossWeight::of_kind() const {
  LossWeight weight = *this;
  weight.depends_on_kind_ = true;
  return weight;
}

LossWeight LossWeight::of_loss(std::shared_ptr<const std::uint64_t> runs) const {
  LossWeight weight = *this;
  weight.runs_ = std::move(runs);
  return weight;
}

at::Tensor LossWeight::on(at::Device device) const {
  return is_on_device() ? on_device_.to(device)
                        : at::scalar_tensor(number(), at::TensorOptions(device).dtype(at::kDouble));
}

at::Tensor LossWeight::times(const at::Tensor& value) const {
  if (is(1)) return value;
  if (is(0)) return at::zeros_like(value);
  if (!is_on_device()) return value * number();
  return value_or_zero(value * on_device_.to(value.scalar_type()));
}

at::Tensor LossWeight::value_or_zero(const at::Tensor& value) const {
  if (!is_on_device()) return is(0) ? at::zeros_like(value) : value;
  return at::where(on_device_.to(value.device()).ne(0), value, at::zeros_like(value));
}

LossWeight LossWeight::operator+(const LossWeight& other) const {
  if (is(0)) return other;
  if (!is_on_device() && !other.is_on_device()) return number() + other.number();
  const at::Device device = (is_on_device() ? *this : other).on_device_.device();
  return on(device) + other.on(device);
}

LossWeight LossWeight::operator*(double factor) const {
  if (is_on_device()) return on_device_ * factor;
  return number() * factor;
}

LossWeight LossWeight::operator/(const LossWeight& whole) const {
  if (!is_on_device() && !whole.is_on_device()) return whole.is(0) ? 0 : number() / whole.number();
  if (on_device_.is_same(whole.on_device_)) return 1;  // also if it is 0, because it is not read
  const at::Device device = (is_on_device() ? *this : whole).on_device_.device();
  const at::Tensor under = whole.on(device);
  return at::where(under.ne(0), on(device) / under, at::zeros_like(under));
}

}  // namespace composer
