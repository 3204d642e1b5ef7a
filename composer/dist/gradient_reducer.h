// Drives libtorch's c10d::Reducer. Internal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
}

namespace composer::dist {

// Reduces gradients bucket by bucket as they appear in a backward pass. All ranks make the same calls in the same
// order.
//
// The Reducer's own hooks are removed, for two reasons: it could reduce a gradient to which a checkpoint() segment
// still adds, and a rank without a gradient for some parameter would leave the others waiting for ever. Instead, hooks
// of this class pass on each gradient when it is complete, and finish() passes on the rest. One hidden parameter, the
// last to be passed on, tells the other ranks which gradients this rank had. It travels in the last bucket, so all
// ranks learn without another message whose gradients were missing.
class GradientReducer {
 public:
  struct Options {
    std::int64_t bucket_bytes = 0;
    bool in_bf16 = false;
  };
  // The parameters are distinct leaves that require gradients, on one device.
  GradientReducer(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::vector<at::Tensor> parameters,
                  std::vector<std::string> names, const Options& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Called before the forward pass. After the first step, sorts the buckets by the order in which gradients appeared.
  void before_forward();
  // From now on until finish(), gradients are passed on. With `outputs`, parameters on which the outputs do not depend
  // are passed on at once, so that their buckets need not wait for the end.
  void begin(const std::vector<at::Tensor>* outputs);
  // Passes on the remaining gradients and waits for the reduction. Then every gradient is the mean over ranks.
  // Undefined gradients count as 0, and as missing if `must_have`.
  void finish(bool must_have);
  bool has_begun() const { return has_begun_; }

  // After finish(): which gradients this rank and all ranks together had. The device copies them to the host in its
  // order of work. summary() waits for that copy, and for nothing that was queued after it.
  struct Counts;
  std::shared_ptr<const Counts> start_counts() const;
  struct Summary {
    bool any_missing = false;  // whether a gradient was missing on any rank
    std::vector<std::size_t> missing_here;
  };
  static Summary summary(const Counts& counts);
  // After finish(): makes gradients undefined that were undefined on all ranks. Waits for the device if this rank had
  // undefined gradients.
  void drop_absent() const;

 private:
  struct Core;  // keeps c10d out of this header

  void arrived(std::size_t index);
  void pass_on(std::size_t index);
  void set_hidden_gradient(const std::vector<float>& flags);

  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<bool> passed_on_, present_;
  bool has_begun_ = false, must_have_ = false;
  at::Tensor hidden_;
  std::vector<float> flags_;  // of the last step
  at::Tensor on_device_;  // flags_ on the device, kept because they seldom change and a copy from the host would wait
  std::unique_ptr<Core> core_;
};

}  // namespace composer::dist
