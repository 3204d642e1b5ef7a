// error: max_epochs
#include "composer/trainer/trainer.h"

composer::Trainer trainer(composer::TrainerOptions{.max_epochs = "5ep"});
