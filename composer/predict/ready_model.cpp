#include "composer/predict/ready_model.h"

#include <exception>

#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/models/classifier.h"
#include "composer/models/registry.h"
#include "composer/predict/random_aside.h"

namespace composer::predict {

std::shared_ptr<Model> make_ready_model(const PredictorInfo& info, const std::string& path) {
  try {
    const RandomAside random;  // the program needs no random weights
    return models::make(info.model, info.options);
  } catch (const c10::Error& error) {
    throw CheckpointError(path, ": model: ", error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw CheckpointError(path, ": model: ", error.what());
  }
}

}  // namespace composer::predict
