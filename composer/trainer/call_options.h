// Describes the options of a fit, an evaluator, an evaluation and a prediction. Internal.
#pragma once
#include <vector>

#include "composer/core/option.h"
#include "composer/trainer/trainer.h"

namespace composer {

const std::vector<Option<FitOptions>>& fit_options();
const std::vector<Option<Evaluator>>& evaluator_options();
const std::vector<Option<EvalOptions>>& eval_options();
const std::vector<Option<PredictOptions>>& predict_options();

}  // namespace composer
