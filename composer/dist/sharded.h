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
// Each parameter belongs to one rank as a whole. The largest are assigned first, each to the rank with the fewest bytes
// so far; parameters that require no gradients come last. All ranks compute the same division. A rank's optimizer holds
// its own parameters only, so it has state only for these. After its step all ranks get the new values from their
// owners. Because no parameter is cut, optimizers that need whole tensors (LAMB, Muon, Adafactor) compute the same bits
// as without sharding, and so does every other one. The price: a model with one dominating parameter cannot be divided
// equally; see largest_share().
//
// Stage 1: gradients are averaged as without sharding (DataParallel), so clipping and everything else that reads
// gradients works unchanged.
//   Sharded sharded(world, parameters);
//   optimizer.set_parameters(...);  // for each group: those of its parameters for which sharded.is_own() is true
//   each step: backward with DataParallel;  optimizer.step();  sharded.exchange();
// Groups stay, even empty ones, so schedules set learning rates as without sharding.
// Stage 2: the backward passes run without DataParallel, and reduce_gradients() replaces its reduction. The reduction
// begins after the backward pass. Each rank then has the gradients of its own parameters only.
// Checkpoints: gather() combines each rank's optimizer state into the state of an optimizer without sharding, and
// own_part() selects from it what this rank's optimizer loads. The number of ranks may differ between the two.
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
  // Replaces the list of parameters. Parameters that were in the list keep their owner. Not a collective: call check()
  // before the next collective. Throws ConfigError if a tensor or a name is given twice.
  void set_parameters(Named parameters);
  void check() const;  // collective; throws ConfigError on all ranks if their parameters differ
  const Named& parameters() const { return parameters_; }

  // Both throw ConfigError for a tensor that is not a parameter.
  int owner_of(const at::Tensor& parameter) const;
  bool is_own(const at::Tensor& parameter) const;
  // The bytes of the rank with the most, as a fraction of all bytes: 0.25 if four ranks have equal shares.
  double largest_share() const;

  // To be called after the optimizer's step: gives all ranks the owner's value of each parameter, by all-gathers of
  // about message_bytes. With `changed`: only for parameters for which it is true. It must be equal on all ranks.
  void exchange(std::int64_t message_bytes = 25 << 20);
  void exchange(const std::vector<bool>& changed, std::int64_t message_bytes = 25 << 20);
  // Replaces gradients by their mean over ranks on their owners, and makes them undefined elsewhere, by reduce-scatters
  // of about message_bytes. Undefined gradients count as zeros; those undefined on all ranks stay undefined. Returns
  // for each parameter whether any rank had a gradient. Throws ConfigError for a sparse gradient.
  std::vector<bool> reduce_gradients(std::int64_t message_bytes = 25 << 20);

  // On rank `root`: the state tensors of all ranks, ordered by parameter; on other ranks: empty. Tensors from other
  // ranks are copies on the host. They travel in pieces, so no other rank needs memory for more than 64 MiB or the
  // largest tensor.
  std::vector<StateTensor> gather(const std::vector<StateTensor>& own, int root = 0) const;
  // Selects the state of this rank's parameters. Throws ConfigError for the state of a tensor that is not a parameter.
  std::vector<StateTensor> own_part(const std::vector<StateTensor>& all) const;

 private:
  std::size_t index_of(const at::Tensor& parameter) const;
  std::size_t index_of(const std::string& name) const;
  void divide(const std::vector<int>& known);

  std::shared_ptr<World> world_;
  Named parameters_;
  std::vector<int> owners_;  // of the parameters, in their order
  std::unordered_map<const void*, std::size_t> by_tensor_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

}  // namespace composer::dist
