#pragma once
// What every rank has of a model, and whether it is still the same.
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer {

class Ranks;
class TrainStep;
class WeightsInUse;
struct State;

// By tensor: a checksum of the bytes of its elements in their order, whatever its memory layout. Equal tensors on
// devices of one kind have equal ones. What is not strided, or has no elements, has 0.
std::vector<std::uint64_t> checksums_of(const std::vector<at::Tensor>& tensors);

// The same of one contiguous tensor, computed where it is: another number than on the host, in a tensor of one.
at::Tensor checksum_on_device(const at::Tensor& tensor);

// The largest difference between numbers at the same place, as a share of the largest of `a`: 0 for equal ones, also
// where both are NaN; infinite where one is.
double relative_difference(const at::Tensor& a, const at::Tensor& b);

// Whether all ranks still train the same: the learning rates in force, what is frozen, and the weights. With one rank
// nothing is compared.
class ReplicaCheck {
 public:
  ReplicaCheck(const Ranks& ranks, const State& state, const TrainStep& step)
      : ranks_(ranks), state_(state), step_(step) {}

  // A rank has saved by itself: the others hear of it in their next vote, and then all of them compare.
  void note_saved() { untold_ = true; }
  bool take_saved() { return std::exchange(untold_, false); }

  // All ranks call it at the same places: none may leave it out for what it alone knows. What is compared is equal to
  // the bit on ranks that do the same, because they add the same gradients; new parameters become those of rank 0
  // first. Buffers may differ until they are shared. Without `modes`, modules may be frozen on some ranks: the model is
  // not trained next. Throws ConfigError on all ranks alike; what may come of rounding is a warning, once.
  void compare(bool modes = true);

  // Give all ranks the model of rank 0, or its buffers alone: batch-norm statistics differ by rank while training, and
  // all are to evaluate one model. For `weights` this is no change, so that all ranks know the same metrics for
  // current.
  void share_model(WeightsInUse& weights) const;
  void share_buffers(WeightsInUse& weights) const;
  // When a fit ends: also those of what an algorithm hands out for the model.
  void share_last_buffers(WeightsInUse& weights) const;

 private:
  void share_new() const;
  void compare_settings(bool modes) const;
  void compare_weights(const std::vector<std::uint64_t>& sums);

  const Ranks& ranks_;
  const State& state_;
  const TrainStep& step_;
  bool untold_ = false, warned_ = false;
};

}  // namespace composer
