#pragma once
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer {

class Engine;

// The state of every algorithm, callback and logger under the name of its class; a second one of a class is "Name-2",
// so several of one class are told apart by their order alone. When loading, a state without a plug-in is a warning,
// and so is a plug-in without a state, if `warns`.
COMPOSER_EXPORT void visit_plugins(StateVisitor& visit, const Engine& engine, bool warns = true);

// Throws CheckpointError if a LoadCheck among the plug-ins refuses its part of what visit_plugins() has saved.
COMPOSER_EXPORT void check_plugins(const StateDict& saved, const Engine& engine);

// Throws CheckpointError if an algorithm or a callback gives two fields one name, which each checkpoint would refuse.
// Not for loggers: to save one may write to its disk.
COMPOSER_EXPORT void check_field_names(const Engine& engine);

}  // namespace composer
