#pragma once
#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/parameter_group.h"

namespace composer::optim {

// Makes an optimizer for the parameters that a model has had before, one for those that it has now. Parameters that
// have left the model leave it, with their state. One with the name of another takes its place. A new one joins the
// group of the parameter with the closest name: as many modules in common as possible, then the same last part, then as
// many dimensions. If that parameter was in no group, the new one is in none either. All others stay, with their state,
// and get the model's names.
COMPOSER_EXPORT void refit(Optimizer& optimizer, const NamedParameters& before, const NamedParameters& now);

}  // namespace composer::optim
