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

// The model as all ranks have it. All of them call it alike.
class SharedModel {
 public:
  // `optimizer` null: no rank needs to know that of the others.
  SharedModel(State& state, std::shared_ptr<dist::World> world, OptimizerShards* optimizer)
      : state_(state), world_(std::move(world)), optimizer_(optimizer) {}

  // Gives all ranks rank 0's buffers (parameters, too), so that they evaluate the same model.
  void share_buffers();
  void share();
  // Whether this rank has parameters that have not been shared yet, or others are frozen. Surgery draws values on each
  // rank, so before a batch, and before weights are compared, all ranks get those of rank 0. share_new() is for all
  // ranks if one has changes; it throws ConfigError on all if their models are not alike.
  bool has_changed();
  void share_new();
  void check(const std::vector<std::string>& lines) const;  // likewise, where these differ

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
