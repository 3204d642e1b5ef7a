#pragma once
// What most programs need: how an optimizer is given to a trainer, and those that are used most.
#include "composer/optim/adam.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/sgd.h"
