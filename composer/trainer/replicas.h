#pragma once
// What every rank has of a model, and whether it is still the same.
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer {

class Ranks;
struct State;

// By tensor: the sum of its bytes, taken as whole numbers. It depends neither on the order of additions nor on the
// memory layout of dense tensors of one layout, so equal tensors have equal sums on every machine. What is not strided
// has 0. One read of the host for all tensors of a device.
std::vector<std::int64_t> sums_of_bits(const std::vector<at::Tensor>& tensors);

// The largest difference between numbers at the same place, as a share of the largest of `a`: 0 for equal ones, also
// where both are NaN; infinite where one is.
double relative_difference(const at::Tensor& a, const at::Tensor& b);

// Whether all ranks still train the same: the learning rates in force, what is frozen, and the weights. With one rank
// nothing is compared.
class ReplicaCheck {
 public:
  ReplicaCheck(const Ranks& ranks, const State& state) : ranks_(ranks), state_(state) {}

  // Parameters that are put into the model after this are compared from the next step on, which gives all ranks those
  // of rank 0.
  void begin_fit();
  // Rank 0 has saved by itself: the others hear of it in their next vote, and then all of them compare.
  void note_saved() { untold_ = true; }
  bool take_saved() { return std::exchange(untold_, false); }
  void ask() { asked_ = true; }
  bool is_asked() const { return asked_; }

  // All ranks call it at the same batch; once a batch is enough. What is compared is equal to the bit on ranks that do
  // the same, because they add the same gradients. Buffers may differ until they are shared. Throws ConfigError on all
  // ranks alike; what may come of rounding is a warning, once.
  void compare();

 private:
  void compare_settings() const;
  void compare_weights(const std::vector<std::int64_t>& sums);

  const Ranks& ranks_;
  const State& state_;
  std::vector<at::Tensor> known_;  // the parameters of the last comparison, or of the start of the fit
  std::int64_t compared_at_ = -1;  // the batch of the last comparison
  bool untold_ = false, asked_ = false, warned_ = false;
};

}  // namespace composer
