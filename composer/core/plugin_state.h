#pragma once
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer {

class Engine;

// Which algorithms what is saved cannot do without. When loading: CheckpointError if one of them is not here.
COMPOSER_EXPORT void visit_required_algorithms(StateVisitor& visit, const Engine& engine);

// The state of every algorithm, callback and logger under the name of its class; a second one of a class is "Name-2".
// When loading: what the checkpoint has and nobody here wants, or the other way round, is a warning.
COMPOSER_EXPORT void visit_plugins(StateVisitor& visit, const Engine& engine);

}  // namespace composer
