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
// are put in where operators are dispatched, so the model is not touched. Only what operators on this thread do is
// seen: work on the memory of a layer's output (data_ptr) goes unnoticed, and the folded result is then wrong. Compare
// the outputs of one batch before you rely on it, as Trainer does.
class COMPOSER_EXPORT BatchNormFolding {
  struct Pair {
    at::Tensor weight, bias;                 // of the layer
    at::Tensor gamma, beta, mean, variance;  // of its batch norm
    double eps;
  };

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
    // Runs `forward` with the copies on this thread. Returns false if the output of a folded layer was used other than
    // by its batch norm, once: what `forward` has made is wrong then.
    bool run(const std::function<void()>& forward);
    // Whether a run met a layer or a batch norm with other tensors, or another eps, than when it was watched.
    bool stale() const { return stale_; }

   private:
    friend class BatchNormFolding;
    friend struct FoldingKernels;
    struct Norm {
      const at::TensorImpl *gamma, *beta, *mean, *variance;
      double eps;
      bool operator==(const Norm&) const = default;
    };
    struct Layer {
      at::Tensor weight, bias;         // folded
      const at::TensorImpl* own_bias;  // the model's
      Norm norm;                       // the batch norm that follows
      bool ran = false;                // in this run
    };
    struct Output {
      c10::weak_intrusive_ptr<at::TensorImpl> tensor;  // keeps the address from being used again
      Norm norm;
      bool normalized = false;
    };
    Folded() = default;
    void note_use(const c10::IValue& value);
    Layer* find(const at::Tensor& weight, const at::Tensor& bias);  // nullptr: it is not folded
    void note_output(Layer& layer, const at::Tensor& output);
    bool replaces(const at::TensorImpl* input, const Norm& norm, bool training);

    std::vector<Pair> kept_alive_;  // whose addresses are compared, and are not used again meanwhile
    std::unordered_map<const at::TensorImpl*, Layer> layers_;        // by the model's weight
    std::unordered_map<const at::TensorImpl*, const Layer*> norms_;  // by the running mean
    std::unordered_map<const at::TensorImpl*, Output> outputs_;      // of folded layers, in this run
    bool result_is_wrong_ = false, stale_ = false;
  };
  Folded fold() const;

 private:
  std::vector<Pair> pairs_;
};

}  // namespace composer
