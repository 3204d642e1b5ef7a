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

// Divides the work and the state of state.optimizer among ranks (DistributedOptions::zero_stage). The optimizer keeps
// all parameters in its groups, so schedules and surgery find them as usual. During its step, the optimizer has the
// gradients of this rank's parameters only, so it makes state only for these.
class OptimizerShards {
 public:
  OptimizerShards(State& state, std::shared_ptr<dist::World> world, const dist::DistributedOptions& options);

  // Whether this rank keeps the state of the parameter. Uses the optimizer's current parameters.
  bool is_own(const at::Tensor& parameter);
  bool divides_gradients() const { return stage_ == 2; }
  // Throws ConfigError for algorithms that need all gradients, if ranks have only some.
  void check_algorithms(const Engine& engine) const;

  // Whether the optimizer has other parameters than at the last comparison of all ranks.
  bool has_changed();

  // Collectives from here on. check() throws ConfigError on all ranks if their optimizers have different parameters.
  void check();
  // In stage 2, after the last backward pass: replaces gradients by their mean over ranks, each on its owner.
  void reduce_gradients();
  // Called around the optimizer's step. Afterwards all ranks have the new weights, and gradients are as before.
  void before_step();
  void after_step();
  // Combines what visit_optimizer() has saved on each rank. Rank 0 gets what it would have saved without sharding, with
  // the tensors of other ranks on the host; other ranks get an empty state.
  StateDict gather(const StateDict& own);

 private:
  void update();

  State& state_;
  std::shared_ptr<dist::World> world_;
  dist::Sharded sharded_;
  std::int64_t stage_, message_bytes_;
  bool is_checked_ = true;                                     // whether all ranks have these parameters
  std::vector<bool> changed_;                                  // for each parameter, whether some rank has a gradient
  std::vector<std::pair<std::size_t, at::Tensor>> gradients_;  // of other ranks' parameters, during the step
};

}  // namespace composer
