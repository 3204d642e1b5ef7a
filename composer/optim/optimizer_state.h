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

// Saves and loads the state of an optimizer: ours and libtorch's by the model's parameter names, others through their
// save() and load(). Options are not part of it; the program sets them. Throws CheckpointError for the state of another
// class or of other parameters, and for a class that has state but does not save it.
// check_optimizer() throws for another class before anything is loaded; `saved` is what visit_optimizer() saved.
void check_optimizer(const StateDict& saved, const torch::optim::Optimizer& optimizer);
void visit_optimizer(StateVisitor& visit, torch::optim::Optimizer& optimizer, const torch::nn::Module& model);

}  // namespace composer
