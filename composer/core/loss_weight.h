#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "composer/core/export.h"

namespace composer {

// What the mean of a loss is over: the number of its targets, or the sum of their weights. Parts of a batch count by
// it, so that they give the loss and the gradient of the whole. A number, or a tensor on a device, which is not read.
class COMPOSER_EXPORT LossWeight {
 public:
  LossWeight() = default;  // unknown: the samples count
  LossWeight(double weight) : number_(weight) {}
  LossWeight(const at::Tensor& weight);  // one number; read now if it is on the host
  // The same, where the weight also depends on whether a target is a class or the probabilities of classes, as it does
  // with weights of classes: it is asked for again if an algorithm has smoothed or mixed targets.
  LossWeight of_kind() const;
  // The same, where it is that of one loss, which a derived class may have overridden. `runs` is how often that one has
  // run: for a microbatch for which it does not, the samples count.
  LossWeight of_loss(std::shared_ptr<const std::uint64_t> runs) const;

  bool known() const { return number_ || on_device_.defined(); }
  bool depends_on_kind() const { return depends_on_kind_; }
  bool depends_on_loss() const { return runs_ != nullptr; }
  std::uint64_t runs() const { return runs_ ? *runs_ : 0; }
  bool is_on_device() const { return on_device_.defined(); }
  double number() const { return number_.value_or(0); }       // 0 on a device
  bool is(double number) const { return number_ == number; }  // never on a device
  at::Tensor on(at::Device device) const;                     // in double

  // `value` times this. A weight of 0 gives 0 even if the value is NaN, as a mean over nothing may be.
  at::Tensor times(const at::Tensor& value) const;
  // `value`, or zeros if this is 0, also where that is not known on the host.
  at::Tensor value_or_zero(const at::Tensor& value) const;

  // Of parts. What the sums and shares depend on is not kept.
  LossWeight operator+(const LossWeight& other) const;
  LossWeight operator*(double factor) const;
  LossWeight operator/(const LossWeight& whole) const;  // 0 / 0 is 0

 private:
  std::optional<double> number_;
  at::Tensor on_device_;  // if there is no number
  bool depends_on_kind_ = false;
  std::shared_ptr<const std::uint64_t> runs_;  // of the loss that this is the weight of; null: of any
};

}  // namespace composer
