// error: AdamWOptions
#include "composer/optim/adam.h"
#include "composer/trainer/trainer.h"

composer::TrainerOptions options{.optimizer = composer::optim::adamw({.learning_rate = 1e-3})};
