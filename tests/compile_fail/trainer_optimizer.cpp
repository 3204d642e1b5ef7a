// error: not an optimizer: give optim::adamw
#include "composer/trainer/trainer.h"

composer::Trainer trainer({.optimizer = 1e-3, .max_duration = "5ep"});
