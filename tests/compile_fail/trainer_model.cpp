// error: not a model: .model takes a std::shared_ptr to a class that derives publicly from composer::Model
#include "composer/core/model.h"
#include "composer/trainer/trainer.h"

struct Net : torch::nn::Module {};
composer::Trainer trainer({.model = std::make_shared<Net>(), .max_duration = "5ep"});
