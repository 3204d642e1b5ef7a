// error: does not match. Trainer.TrainerOptions
#include "composer/trainer/trainer.h"

composer::Trainer trainer({.max_epochs = "5ep"});
