#pragma once
#include <memory>

#include <torch/optim/optimizer.h>

#include "composer/core/model.h"
#include "tests/replay/replay.h"

namespace composer::replay {

// Ours, with the options of the recorded one. Throws Unsupported.
std::shared_ptr<torch::optim::Optimizer> make_optimizer(const Json& recorded, const Model& model);

}  // namespace composer::replay
