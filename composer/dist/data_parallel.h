#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace composer::dist {

class World;

struct DataParallelOptions {
  std::int64_t bucket_cap_mb = 25;  // MiB; gradients are reduced in buckets of about this size
  // Whether some parameters may get no gradient in a step, on some ranks or on all. True: each step looks for them
  // before its backward pass, so that the others are sent during it. False: a step that leaves out a parameter is an
  // error. Unset: true as soon as a step has left one out.
  std::optional<bool> find_unused_parameters = {};
  bool gradients_in_bf16 = false;  // sends gradients in half of the bytes, rounded to bf16
  bool broadcast_buffers = true;   // buffers (batch-norm statistics) are rank 0's before each forward pass
  bool share_values = true;        // false: all ranks have the same parameters and buffers already
};

// Averages gradients over ranks during the backward pass, by the Reducer of libtorch's C++ core, which is the one of
// PyTorch's DistributedDataParallel. All calls are collectives: every rank makes them in the same order. With one rank
// they do nothing.
//
// Afterwards gradients are views of the buckets: the next pass that reduces overwrites them, so keep copies, not the
// tensors. Gradients of zero, undefined ones and detach_() are fine. A gradient that checkpoint() segments compute is
// sent when no segment is left.
class COMPOSER_EXPORT DataParallel {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  // Gives all ranks rank 0's values, if share_values. `parameters` are distinct leaf tensors that require gradients, on
  // one device. Throws ConfigError on all ranks if the ranks differ in options, names, shapes, dtypes, memory layout or
  // order, naming the first difference.
  DataParallel(std::shared_ptr<World> world, Named parameters, Named buffers, const DataParallelOptions& options = {});
  // Of the parameters of the module that require gradients, each once, and of its buffers.
  DataParallel(std::shared_ptr<World> world, const torch::nn::Module& module, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Around the forward pass whose backward pass reduces. Other passes need no call: their gradients add up locally.
  void before_forward();
  void before_backward(const std::vector<at::Tensor>& outputs);  // what backward() starts from
  // After that backward pass. All gradients are then the mean over ranks; an undefined one counts as zeros, and stays
  // undefined if it is so on all ranks. Throws ConfigError, on all ranks, if a parameter has no gradient and must have
  // (find_unused_parameters = false); its name and the rank are in the text. On a GPU, that of the next step throws it:
  // this one does not wait for the device.
  void after_backward();
  // loss.backward() between before_backward() and after_backward(); with one rank, loss.backward() alone.
  void backward(const at::Tensor& loss);
  // Instead of the three, for a rank that has no samples in this step: takes part with the gradients that it has added
  // up before, or zeros. Afterwards it has the mean as all others. If no rank has samples, all may call it.
  void take_part();

  // Whether these are the same tensors in the same order, and none has another shape, dtype or device since.
  bool matches(const std::vector<at::Tensor>& parameters) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer::dist
