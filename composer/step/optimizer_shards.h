#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/dist/options.h"
#include "composer/dist/sharded.h"

namespace composer {

namespace dist {
class World;
}  // namespace dist

class Engine;

// The work and the state of state.optimizer, divided among ranks (DistributedOptions::zero_stage). The optimizer keeps
// all parameters in its groups, so schedules, surgery and whoever else looks at them find what they always do. In its
// step a rank leaves it the gradients of the rank's own parameters alone: it makes state for no others.
class OptimizerShards {
 public:
  OptimizerShards(State& state, std::shared_ptr<dist::World> world, const dist::DistributedOptions& options);

  // Whether this rank keeps the state of the parameter. Looks at the optimizer's parameters, which may have changed.
  bool is_own(const at::Tensor& parameter);
  bool divides_gradients() const { return stage_ == 2; }
  // Throws ConfigError for algorithms that need all gradients, where a rank has only some.
  void check_algorithms(const Engine& engine) const;

  // Whether the optimizer has other parameters than when all ranks have compared them last.
  bool has_changed();

  // Collectives. check() throws ConfigError on all ranks if their optimizers have different parameters.
  void check();
  // After the last backward pass, in stage 2: gradients become the mean over ranks, each on its owner.
  void reduce_gradients();
  // Around the optimizer's step. Afterwards all ranks have the new weights, and gradients are what they were.
  void before_step();
  void after_step();
  // Of what visit_optimizer() has saved on each rank: on rank 0 what it would have saved without sharding, with the
  // tensors of other ranks on the host; elsewhere empty.
  StateDict gather(const StateDict& own);

 private:
  void update();

  State& state_;
  std::shared_ptr<dist::World> world_;
  dist::Sharded sharded_;
  std::int64_t stage_, message_bytes_;
  bool is_checked_ = true;                                     // all ranks have these parameters
  std::vector<bool> changed_;                                  // parameters that have a gradient on some rank
  std::vector<std::pair<std::size_t, at::Tensor>> gradients_;  // of other ranks' parameters, during the step
};

}  // namespace composer
