#pragma once
#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/parameter_group.h"

namespace composer::optim {

// Changes an optimizer of the parameters that a model had before into one of the parameters that it has now. Parameters
// that are no longer in the model are removed, with their state. A parameter that has the name of another one replaces
// it. A parameter with a new name joins the group of the parameter with the closest name: the one with the most modules
// in common, then with the same last part, then with the same number of dimensions. If that parameter was in no group,
// neither is the new one. All other parameters keep their state, and get the model's names.
COMPOSER_EXPORT void refit(Optimizer& optimizer, const NamedParameters& before, const NamedParameters& now);

}  // namespace composer::optim
