#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/state.h"

namespace composer {

namespace dist {
class World;
}  // namespace dist

class OptimizerShards;

// Keeps the model equal on all ranks. All ranks make the same calls.
class SharedModel {
 public:
  // `optimizer` is null if its state is not divided among ranks.
  SharedModel(State& state, std::shared_ptr<dist::World> world, OptimizerShards* optimizer)
      : state_(state), world_(std::move(world)), optimizer_(optimizer) {}

  // share_buffers() gives all ranks rank 0's buffers, share() also its parameters, so that they evaluate the same
  // model.
  void share_buffers();
  void share();
  // Whether this rank has parameters that were not shared yet, or other frozen parameters. Surgery draws values on each
  // rank, so before a batch, and before weights are compared, all ranks get the new parameters of rank 0. If any rank
  // has changes, all ranks call share_new(); it throws ConfigError on all if their models differ.
  bool has_changed();
  void share_new();
  void check(const std::vector<std::string>& lines) const;  // throws ConfigError on all ranks if these differ

 private:
  struct Shared {
    at::Tensor parameter;
    std::vector<std::int64_t> sizes;
    bool requires_grad;
  };
  void note_shared();

  State& state_;
  std::shared_ptr<dist::World> world_;
  OptimizerShards* optimizer_;
  std::vector<Shared> shared_;  // parameters
};

}  // namespace composer
