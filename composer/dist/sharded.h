#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::dist {

class World;

// Divides the work and the state of an optimizer among ranks (stages 1 and 2 of ZeRO, arXiv:1910.02054).
//
// Each parameter as a whole belongs to one rank: the largest first, each to the rank with the fewest bytes so far,
// those that require no gradients last. All ranks compute the same division. A rank's optimizer holds its own
// parameters only, so it has state for these only, and after its step all ranks get the new values from their owners.
// Because no parameter is cut, optimizers that need whole tensors (LAMB, Muon, Adafactor) compute the same bits as
// without sharding, and so does every other one. The price: a model with one dominating parameter cannot be divided
// equally; see largest_share().
//
// Stage 1: gradients are averaged as always (DataParallel), so clipping and everything else that reads gradients works
// as without sharding.
//   Sharded sharded(world, parameters);
//   optimizer.set_parameters(...);  // for each group: those of its parameters for which sharded.is_own() is true
//   each step: backward with DataParallel;  optimizer.step();  sharded.exchange();
// Groups stay, even empty ones, so schedules set learning rates as always.
// Stage 2: backward passes without DataParallel, then reduce_gradients() in place of its reduction. Each rank then has
// the gradients of its own parameters only. The reduction begins after the backward pass.
// Checkpoints: gather() makes the optimizer state of all ranks out of each rank's own, in the form that an optimizer
// without sharding has, and own_part() chooses from it what this rank's optimizer is to load. The number of ranks may
// differ between the two.
class COMPOSER_EXPORT Sharded {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;
  // One tensor of an optimizer's state, such as exp_avg of fc.weight.
  struct StateTensor {
    std::string parameter, key;
    at::Tensor tensor;
  };

  // Throws ConfigError on all ranks if their parameters differ.
  Sharded(std::shared_ptr<World> world, Named parameters);
  // From now on these are the parameters. Those that were there keep their owner. Not a collective: call check() before
  // the next one. Throws ConfigError for a tensor or a name that is given twice.
  void set_parameters(Named parameters);
  void check() const;  // collective; throws ConfigError on all ranks if their parameters differ
  const Named& parameters() const { return parameters_; }

  // Both throw ConfigError for a tensor that is not a parameter.
  int owner_of(const at::Tensor& parameter) const;
  bool is_own(const at::Tensor& parameter) const;
  // The bytes of the rank with the most, as a share of all: 0.25 if four ranks have equal shares.
  double largest_share() const;

  // After the optimizer's step: each parameter is what it is on its owner, by all-gathers of about message_bytes. With
  // `changed`: only parameters for which it is true, on all ranks alike.
  void exchange(std::int64_t message_bytes = 25 << 20);
  void exchange(const std::vector<bool>& changed, std::int64_t message_bytes = 25 << 20);
  // Gradients become the mean over ranks on their owners, and undefined elsewhere, by reduce-scatters of about
  // message_bytes. Undefined gradients count as zeros; those undefined on all ranks stay undefined. Returns for which
  // parameters some rank has had one. Throws ConfigError for a sparse gradient.
  std::vector<bool> reduce_gradients(std::int64_t message_bytes = 25 << 20);

  // On rank `root`: the state tensors of all ranks, ordered by parameter; elsewhere empty. Those of other ranks are
  // copies on the host. They travel in pieces, so no other rank needs memory for more than 64 MiB or the largest
  // tensor.
  std::vector<StateTensor> gather(const std::vector<StateTensor>& own, int root = 0) const;
  // Those of this rank's parameters. Throws ConfigError for the state of a tensor that is not a parameter.
  std::vector<StateTensor> own_part(const std::vector<StateTensor>& all) const;

 private:
  std::size_t index_of(const at::Tensor& parameter) const;
  std::size_t index_of(const std::string& name) const;
  void divide(const std::vector<int>& known);

  std::shared_ptr<World> world_;
  Named parameters_;
  std::vector<int> owners_;  // of parameters
  std::unordered_map<const void*, std::size_t> by_tensor_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

}  // namespace composer::dist
