#pragma once
#include <torch/nn/module.h>

#include "composer/core/plugins.h"
#include "tests/replay/replay.h"

namespace composer::replay {

// Does what the algorithms of a run do that replace modules or lay out weights, and fills the model with the weights
// that were recorded after it.
void replace_modules_of(const Json& c, const Context& context, torch::nn::Module& model);

// Whether that has done what this algorithm does.
bool is_surgery(const Json& algorithm);

// Adds NoOpModel, which makes a model of its own; false for any other.
bool add_no_op_model(Algorithms& list, const Json& algorithm);
bool has_no_op_model(const Json& c);

// The deliberate differences of these. Without a context: to be listed only.
Rules surgery_run_rules(const Context* context);
Rule no_op_model_rule();

}  // namespace composer::replay
