#pragma once
#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {

// A batch norm in evaluation multiplies and shifts each channel by numbers that do not change. Where its input comes
// from a convolution and goes nowhere else, that layer's weights can do it too: W' = W s and
// b' = (b - mean) s + beta with s = gamma / sqrt(var + eps). Layers are told apart by their weights, and folded copies
// are put in where operators are dispatched, so the model is not touched. Only what operators do is seen: work on the
// memory of a layer's output (data_ptr) before its batch norm goes unnoticed, and the folded result is then wrong.
// Compare the outputs of one batch before you rely on it, as Trainer does.
class COMPOSER_EXPORT BatchNormFolding {
 public:
  // Notes what can be folded while `forward` runs on this thread, in evaluation mode and without gradients. What
  // forward makes may outlive it: a layer whose output does is left alone.
  void watch(const std::function<void()>& forward);
  std::size_t size() const { return pairs_.size(); }
  bool empty() const { return pairs_.empty(); }

  // The copies, made of the weights as they are now.
  class COMPOSER_EXPORT Folded {
   public:
    Folded(Folded&&) = default;
    // Runs `forward` with them on this thread. False: it did not pass a folded layer's output to its batch norm as it
    // did when it was watched, so what it has made is wrong.
    bool run(const std::function<void()>& forward);

   private:
    friend class BatchNormFolding;
    friend struct FoldingKernels;
    struct Layer {
      at::Tensor weight, bias;               // folded
      const at::TensorImpl* made = nullptr;  // the last output, until its batch norm has come
    };
    Folded() = default;
    std::unordered_map<const at::TensorImpl*, Layer> layers_;  // by the model's weight
    std::unordered_map<const at::TensorImpl*, Layer*> norms_;  // by the running mean of the batch norm that follows
    bool lost_ = false;
  };
  Folded fold() const;

 private:
  struct Pair {
    at::Tensor weight, bias;                 // of the layer
    at::Tensor gamma, beta, mean, variance;  // of its batch norm
    double eps;
  };
  std::vector<Pair> pairs_;
};

}  // namespace composer
