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
  // Whether each step looks for parameters without a gradient before its backward pass, so that the other gradients are
  // sent during the pass. False: such a parameter is an error. Unset: false until a step leaves one out, then true.
  std::optional<bool> find_unused_parameters = {};
  bool gradients_in_bf16 = false;  // round gradients to bf16 for sending, which halves the bytes
  bool broadcast_buffers = true;   // before each forward pass, all ranks get rank 0's buffers (batch-norm statistics)
  bool share_values = true;        // give all ranks rank 0's parameters and buffers; false: they are equal already
};

// Averages gradients over ranks during the backward pass. Uses the Reducer of libtorch's C++ core, which PyTorch's
// DistributedDataParallel uses, too. All calls are collectives: every rank makes them in the same order. With one rank
// they do nothing.
//
// After a step, gradients are views of the buckets. The next reducing pass overwrites the buckets, so keep copies of
// gradients, not the tensors. Zeroed and undefined gradients and detach_() are supported. Gradients that checkpoint()
// segments compute are sent once no segment is left.
class COMPOSER_EXPORT DataParallel {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  // Gives all ranks rank 0's values, if share_values is set. `parameters` are distinct leaf tensors that require
  // gradients, on one device. Throws ConfigError on all ranks if the ranks differ in options, names, shapes, dtypes,
  // memory layout or order; the error has the first difference.
  DataParallel(std::shared_ptr<World> world, Named parameters, Named buffers, const DataParallelOptions& options = {});
  // Uses the parameters of the module that require gradients, each once, and its buffers.
  DataParallel(std::shared_ptr<World> world, const torch::nn::Module& module, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Call it before the forward pass whose backward pass reduces. Other passes need no call: their gradients add up
  // locally.
  void before_forward();
  void before_backward(const std::vector<at::Tensor>& outputs);  // `outputs`: the tensors on which backward() is called
  // Call it after that backward pass. All gradients are then the mean over ranks. An undefined gradient counts as
  // zeros; it stays undefined if it is undefined on all ranks. Throws ConfigError, on all ranks, if
  // find_unused_parameters is false and a parameter has no gradient; the text has its name and the rank. On a GPU, the
  // call in the next step throws instead, so that this one need not wait for the device.
  void after_backward();
  // Calls before_backward(), loss.backward() and after_backward(); with one rank, only loss.backward().
  void backward(const at::Tensor& loss);
  // For a rank without samples in this step, in place of before_forward(), before_backward() and after_backward(). The
  // rank contributes the gradients that it has accumulated before, or zeros, and gets the mean like all others. All
  // ranks may call it if none has samples.
  void take_part();

  // Whether these are the same tensors in the same order, with the same shapes, dtypes and devices as at the
  // construction.
  bool matches(const std::vector<at::Tensor>& parameters) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer::dist
