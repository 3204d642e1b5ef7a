#pragma once
#include <string>

#include "composer/core/state_dict.h"

namespace composer {

class Engine;

// Saves the names of the algorithms without which the checkpoint cannot be loaded. Does nothing when loading.
void visit_required_algorithms(StateVisitor& visit, const Engine& engine);

// How the algorithms that a checkpoint requires differ from a trainer's.
struct RequiredAlgorithms {
  std::string missing;    // "BlurPool (blur_first = true) and NoOpModel"; empty: none
  std::string differing;  // "GhostBatchNorm/ghost_batch_size: 2 -> 1"; empty: none
};
RequiredAlgorithms compare_required_algorithms(const StateDict& saved, const Engine& engine);

}  // namespace composer
