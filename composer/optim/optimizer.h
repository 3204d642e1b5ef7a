#pragma once
// All optimizers. docs/reference/optimizers.md shows how to choose and use them.
#include "composer/optim/adafactor.h"
#include "composer/optim/adagrad.h"
#include "composer/optim/adam.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/combined.h"
#include "composer/optim/lamb.h"
#include "composer/optim/lion.h"
#include "composer/optim/muon.h"
#include "composer/optim/named_optimizer.h"
#include "composer/optim/parameter_group.h"
#include "composer/optim/rmsprop.h"
#include "composer/optim/sgd.h"
