#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer {

class Model;

// A module of a model, with all that is below it.
struct LayerSummary {
  std::string name;                            // "module.layer1.0.conv1"
  std::string type;                            // "Conv2d"
  std::vector<std::int64_t> output;            // its shape; empty: unknown, as of modules without weights
  std::int64_t parameters = 0, trainable = 0;  // numbers; a tensor that several modules share counts in each
  std::int64_t flops = 0;
  std::int64_t depth = 0;  // 1: a child of the model
};

struct ModelSummary {
  std::string type;                  // the model's class
  std::vector<LayerSummary> layers;  // in the order of the modules, parents first
  std::int64_t parameters = 0, trainable = 0;
  std::int64_t parameter_bytes = 0, buffer_bytes = 0;
  // With an example:
  std::int64_t samples = 0;       // in the example; 0: there was none
  std::int64_t output_bytes = 0;  // of all layers with weights, which is what a backward pass keeps at least
  std::int64_t flops = 0;         // of the forward pass; 0: another counter was counting
};

// Without an example, parameters alone. With one, the model predicts it once, in evaluation mode and without gradients.
COMPOSER_EXPORT ModelSummary summarize(Model& model);
COMPOSER_EXPORT ModelSummary summarize(Model& model, const Batch& example);

// As a table. `depth`: modules that are deeper are part of those above them.
COMPOSER_EXPORT std::string to_text(const ModelSummary& summary, std::int64_t depth = 3);
COMPOSER_EXPORT std::string summary(Model& model, std::int64_t depth = 3);
COMPOSER_EXPORT std::string summary(Model& model, const Batch& example, std::int64_t depth = 3);

}  // namespace composer
