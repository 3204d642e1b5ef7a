#pragma once
#include "composer/core/state_dict.h"

namespace torch {
namespace nn {
class Module;
}
namespace optim {
class Optimizer;
}
}  // namespace torch

namespace composer {

// What an optimizer remembers, for saving and loading: of ours and of libtorch's own by the model's parameter names, of
// users' by their save() and load(). Options are not part of it: they are the program's. Throws CheckpointError for
// the state of another class or of other parameters, and for a class that keeps state and does not save it.
// check_optimizer() throws for another class before anything is loaded; `saved` is what visit_optimizer() has saved.
void check_optimizer(const StateDict& saved, const torch::optim::Optimizer& optimizer);
void visit_optimizer(StateVisitor& visit, torch::optim::Optimizer& optimizer, const torch::nn::Module& model);

}  // namespace composer
