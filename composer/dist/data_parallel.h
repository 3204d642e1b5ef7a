#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::dist {

class World;

struct DataParallelOptions {
  std::int64_t bucket_cap_mb = 25;  // MiB; gradients are reduced in buckets of about this size
  // Whether some parameters may get no gradient in a step, on some ranks or on all. Unset: the first step tells; a
  // later step that leaves out a parameter is then an error.
  std::optional<bool> find_unused_parameters;
  bool gradients_in_bf16 = false;  // sends gradients in half of the bytes, rounded to bf16
  bool broadcast_buffers = true;   // buffers (batch-norm statistics) are rank 0's before each forward pass
};

// Averages gradients over ranks during the backward pass, by the Reducer of libtorch's C++ core, which is the one of
// PyTorch's DistributedDataParallel. All calls are collectives: every rank makes them in the same order.
class COMPOSER_EXPORT DataParallel {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  // Gives all ranks rank 0's values. `parameters` require gradients. Throws ConfigError on all ranks if the ranks differ
  // in names, shapes, dtypes or order, naming the first difference.
  DataParallel(std::shared_ptr<World> world, Named parameters, Named buffers, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Around the forward pass whose backward pass reduces. Other passes need no call: their gradients add up locally.
  void before_forward();
  void before_backward(const std::vector<at::Tensor>& outputs);  // what backward() starts from
  // After that backward pass. All gradients are then the mean over ranks. Throws ConfigError, on all ranks, if a
  // parameter got no gradient and must have; its name is in the text.
  void after_backward();
  // Instead of the three, for a rank that has no samples in this step: takes part with gradients of zero, and those that
  // it has added up before. Afterwards it has the mean as all others.
  void take_part();

  bool matches(const std::vector<at::Tensor>& parameters) const;  // the same tensors in the same order

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer::dist
