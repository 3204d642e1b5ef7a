#pragma once
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer {

class Engine;

// Visits the state of every algorithm, callback and logger under the name of its class. A second one of the same class
// is called "Name-2", so several of one class are told apart by their order alone. When loading, a state without a
// plug-in is a warning, and so is a plug-in without a state, if `warns`.
COMPOSER_EXPORT void visit_plugins(StateVisitor& visit, const Engine& engine, bool warns = true);

// Throws CheckpointError if a plug-in that is a LoadCheck rejects its part of what visit_plugins() has saved.
COMPOSER_EXPORT void check_plugins(const StateDict& saved, const Engine& engine);

// Throws CheckpointError if an algorithm or a callback uses one name for two fields, which would make each checkpoint
// fail. Loggers are not checked, because saving one may write to its disk.
COMPOSER_EXPORT void check_field_names(const Engine& engine);

}  // namespace composer
