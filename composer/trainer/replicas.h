#pragma once
// Compares the models of ranks, and makes them equal.
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer {

class Ranks;
class TrainStep;
class WeightsInUse;
struct State;

// A checksum of each tensor: of the bytes of its elements in their order, independent of its memory layout. Equal
// tensors on devices of one kind have equal checksums. A tensor that is not strided, or is empty, has 0.
std::vector<std::uint64_t> checksums_of(const std::vector<at::Tensor>& tensors);

// Such a checksum of one contiguous tensor, computed on its device, as a tensor of one element. It differs from the
// checksum that the host computes.
at::Tensor checksum_on_device(const at::Tensor& tensor);

// The largest difference of elements at the same position, divided by the largest magnitude in `a`: 0 for equal
// elements, also where both are NaN; infinite where only one is NaN.
double relative_difference(const at::Tensor& a, const at::Tensor& b);

// Checks that all ranks still train the same model: equal learning rates, frozen modules, and weights. With one rank
// nothing is compared.
class ReplicaCheck {
 public:
  ReplicaCheck(const Ranks& ranks, const State& state, const TrainStep& step)
      : ranks_(ranks), state_(state), step_(step) {}

  // Notes that this rank alone has saved. The other ranks learn of it in the next vote, and then all of them compare.
  void note_saved() { has_new_save_ = true; }
  bool take_saved() { return std::exchange(has_new_save_, false); }

  // A collective: all ranks call it at the same places, and no rank may skip it for a reason that only it knows. Ranks
  // that do the same are bit-identical, because they add the same gradients. New parameters are first set to those of
  // rank 0. Buffers may differ until they are shared. Pass false for `modes` if the model is not trained next; modules
  // may then be frozen on some ranks only. Throws ConfigError on all ranks; a difference that may be due to rounding is
  // a warning, once.
  void compare(bool modes = true);

  // Give all ranks the model of rank 0, or only its buffers: batch-norm statistics differ by rank while training, but
  // all ranks are to evaluate one model. `weights` does not count this as a change, so that the same metrics are
  // current on all ranks.
  void share_model(WeightsInUse& weights) const;
  void share_buffers(WeightsInUse& weights) const;
  // At the end of a fit: also shares the buffers of the weights that an algorithm returns for the model.
  void share_last_buffers(WeightsInUse& weights) const;

 private:
  void share_new() const;
  void compare_settings(bool modes) const;
  void compare_weights(const std::vector<std::uint64_t>& sums);

  const Ranks& ranks_;
  const State& state_;
  const TrainStep& step_;
  bool has_new_save_ = false, warned_ = false;
};

}  // namespace composer
