#pragma once
#include <string>
#include <vector>

#include "composer/optim/optimizer.h"

namespace composer::test {

struct NamedFactory {
  std::string name;
  optim::AnyOptimizer optimizer;
};

// Each optimizer of the library once, with a learning rate of a size that suits it: scripts/pages.py compares.
inline std::vector<NamedFactory> every_optimizer(const std::vector<optim::ParameterGroup>& groups = {}) {
  using namespace optim;
  return {{"sgd", sgd({.lr = 0.02, .momentum = 0.9, .groups = groups})},
          {"decoupled_sgdw", decoupled_sgdw({.lr = 0.02, .momentum = 0.9, .weight_decay = 1e-4, .groups = groups})},
          {"adam", adam({.lr = 0.02, .groups = groups})},
          {"adamw", adamw({.lr = 0.02, .groups = groups})},
          {"decoupled_adamw", decoupled_adamw({.lr = 0.02, .groups = groups})},
          {"rmsprop", rmsprop({.lr = 0.002, .groups = groups})},
          {"adagrad", adagrad({.lr = 0.02, .groups = groups})},
          {"lion", lion({.lr = 0.002, .groups = groups})},
          {"lamb", lamb({.lr = 0.02, .groups = groups})},
          {"adafactor", adafactor({.lr = 0.02, .groups = groups})},
          {"muon", muon({.lr = 0.02, .groups = groups})},
          {"combined", combined({{"*weight", adamw({.lr = 0.02, .groups = groups})}, {"*", sgd({.lr = 0.02})}})}};
}

}  // namespace composer::test
