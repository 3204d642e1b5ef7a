#pragma once
#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {

// A batch norm in evaluation multiplies and shifts each channel by numbers that do not change. If its input comes from
// a convolution and is used nowhere else, the weights of the convolution can do the same: W' = W s and b' = (b - mean)
// s + beta with s = gamma / sqrt(var + eps). A layer is identified by its weight tensor. The folded copies are
// substituted where operators are dispatched, so the model is not changed. Only operators of this thread are seen: if
// code reads or writes the memory of a layer's output (data_ptr), this goes unnoticed, and the folded result is wrong.
// Compare the outputs of one batch before you rely on it, as Trainer does.
class COMPOSER_EXPORT BatchNormFolding {
  struct Pair {
    at::Tensor weight, bias;                 // of the layer
    at::Tensor gamma, beta, mean, variance;  // of its batch norm
    double eps;
  };

 public:
  // Runs `forward` on this thread, in evaluation mode and without gradients, and notes which layers can be folded. A
  // layer whose output outlives `forward` is not folded.
  void watch(const std::function<void()>& forward);
  std::size_t size() const { return pairs_.size(); }
  bool empty() const { return pairs_.empty(); }

  // The folded copies, computed from the current weights.
  class COMPOSER_EXPORT Folded {
   public:
    Folded(Folded&&) = default;
    // Runs `forward` on this thread with the folded copies. Returns false if the output of a folded layer was used by
    // anything but its batch norm, or more than once: the results of `forward` are then wrong.
    bool run(const std::function<void()>& forward);
    // Whether a run met a layer or a batch norm whose tensors or eps differ from those that were watched.
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
      c10::weak_intrusive_ptr<at::TensorImpl> tensor;  // the weak reference keeps the address from being reused
      Norm norm;
      bool normalized = false;
    };
    Folded() = default;
    void note_use(const c10::IValue& value);
    Layer* find(const at::Tensor& weight, const at::Tensor& bias);  // nullptr: the layer is not folded
    void note_output(Layer& layer, const at::Tensor& output);
    bool replaces(const at::TensorImpl* input, const Norm& norm, bool training);

    // Their addresses are compared, so they must not be freed and reused meanwhile.
    std::vector<Pair> kept_alive_;
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
