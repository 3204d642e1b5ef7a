#pragma once
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/state_dict.h"
#include "composer/optim/parameter_group.h"

namespace torch {
namespace nn {
class Module;
}
namespace optim {
class Optimizer;
}
}  // namespace torch

namespace composer {

// visit_optimizer() saves and loads the state of an optimizer: for the optimizers of this library and of libtorch by
// the model's parameter names, for others through their save() and load(). Options are not included; the program sets
// them. Throws CheckpointError for the state of another class or of other parameters, and for a class that has state
// but does not save it. check_optimizer() throws for another class before anything is loaded; `saved` is what
// visit_optimizer() has saved.
void check_optimizer(const StateDict& saved, const torch::optim::Optimizer& optimizer);
// With `owns`, saves and loads only the state of parameters for which it returns true; the state of others may be
// missing.
void visit_optimizer(StateVisitor& visit, torch::optim::Optimizer& optimizer, const torch::nn::Module& model,
                     const std::function<bool(const at::Tensor& parameter)>& owns = {});

// The optimizer's parameters under the names that visit_optimizer() gives their state.
optim::NamedParameters parameters_of(const torch::optim::Optimizer& optimizer, const torch::nn::Module& model);

// Returns for each parameter group what serialize() of its options writes, as numbers and text, without "lr", which
// schedules change. Empty if the class does not override serialize(), as in this library, or if it throws.
std::vector<StateDict> serialized_options(const torch::optim::Optimizer& optimizer);

// Whether each process may keep and update only some of the parameters. This requires that a step neither changes nor
// makes state for parameters without a gradient.
bool can_be_sharded(const torch::optim::Optimizer& optimizer);

}  // namespace composer
