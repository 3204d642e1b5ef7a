#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "composer/core/export.h"

namespace composer {

// The divisor of a loss's mean: the number of its targets, or the sum of their weights. Parts of a batch are weighted
// by it, so that together they give the loss and the gradient of the whole batch. It is a number, or a tensor on a
// device, which is not read.
class COMPOSER_EXPORT LossWeight {
 public:
  LossWeight() = default;  // unknown: parts are weighted by their samples
  LossWeight(double weight) : number_(weight) {}
  LossWeight(const at::Tensor& weight);  // one number; read at once if it is on the host
  // A copy of this weight that is marked as depending on the kind of targets (classes, or probabilities of classes), as
  // is the case with weights of classes. It is computed again if an algorithm has smoothed or mixed targets.
  LossWeight of_kind() const;
  // A copy of this weight that is marked as belonging to one loss, which a derived class may have overridden. `runs`
  // counts the calls of that loss. A microbatch for which the loss does not run is weighted by its samples.
  LossWeight of_loss(std::shared_ptr<const std::uint64_t> runs) const;

  bool known() const { return number_ || on_device_.defined(); }
  bool depends_on_kind() const { return depends_on_kind_; }
  bool depends_on_loss() const { return runs_ != nullptr; }
  std::uint64_t runs() const { return runs_ ? *runs_ : 0; }
  bool is_on_device() const { return on_device_.defined(); }
  double number() const { return number_.value_or(0); }       // 0 if it is on a device
  bool is(double number) const { return number_ == number; }  // false if it is on a device
  at::Tensor on(at::Device device) const;                     // as a double

  // `value` times this weight. A weight of 0 gives 0 even if the value is NaN, as the mean over nothing may be.
  at::Tensor times(const at::Tensor& value) const;
  // Returns `value`, or zeros if this weight is 0, even if that is not known on the host.
  at::Tensor value_or_zero(const at::Tensor& value) const;

  // Combine the weights of parts. A sum or a quotient no longer says of which kind of targets or of which loss it is,
  // unless one of a sum is 0.
  LossWeight operator+(const LossWeight& other) const;
  LossWeight operator*(double factor) const;
  LossWeight operator/(const LossWeight& whole) const;  // 0 / 0 is 0

 private:
  std::optional<double> number_;
  at::Tensor on_device_;  // set if number_ is not
  bool depends_on_kind_ = false;
  std::shared_ptr<const std::uint64_t> runs_;  // of the loss that this weight belongs to; null: it belongs to any loss
};

}  // namespace composer
