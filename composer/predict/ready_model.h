#pragma once
#include <memory>
#include <string>

#include "composer/predict/predictor.h"

namespace composer::predict {

// The ready model of a saved predictor, with weights of its own. Throws CheckpointError that begins with `path`.
std::shared_ptr<Model> make_ready_model(const PredictorInfo& info, const std::string& path);

}  // namespace composer::predict
