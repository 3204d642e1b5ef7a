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

// Saves and loads the state of an optimizer: ours and libtorch's by the model's parameter names, others through their
// save() and load(). Options are not part of it; the program sets them. Throws CheckpointError for the state of another
// class or of other parameters, and for a class that has state but does not save it.
// check_optimizer() throws for another class before anything is loaded; `saved` is what visit_optimizer() saved.
void check_optimizer(const StateDict& saved, const torch::optim::Optimizer& optimizer);
// With `owns`, only the state of parameters for which it is true is saved and loaded; that of others may be missing.
void visit_optimizer(StateVisitor& visit, torch::optim::Optimizer& optimizer, const torch::nn::Module& model,
                     const std::function<bool(const at::Tensor& parameter)>& owns = {});

// The optimizer's parameters under the names that visit_optimizer() gives their state.
optim::NamedParameters parameters_of(const torch::optim::Optimizer& optimizer, const torch::nn::Module& model);

// By parameter group: what serialize() of its options writes, as numbers and text, but "lr", which schedules change.
// Empty where a class does not override it, as ours, or where it throws.
std::vector<StateDict> serialized_options(const torch::optim::Optimizer& optimizer);

// Whether each process may keep the state of some parameters and update these: a step leaves parameters without a
// gradient alone, and makes state of no others.
bool can_be_sharded(const torch::optim::Optimizer& optimizer);

}  // namespace composer
