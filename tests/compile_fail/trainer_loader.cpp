// error: not a loader: give what data::in_memory
#include <vector>

#include "composer/trainer/trainer.h"

composer::Trainer trainer({.train_dataloader = std::vector<float>(10), .max_duration = "5ep"});
