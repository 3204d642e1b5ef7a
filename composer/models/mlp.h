#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "composer/core/export.h"
#include "composer/models/classifier.h"

namespace composer::models {

struct MlpOptions {
  // size of the input, sizes of the hidden layers, number of classes
  std::vector<std::int64_t> features = {784, 128, 10};
};

// Linear layers fc1, fc2, ... with ReLU between them. Inputs [N, ...] are flattened. Initialised like
// torch::nn::Linear.
COMPOSER_EXPORT std::shared_ptr<Classifier> mlp(MlpOptions options = {});

}  // namespace composer::models
