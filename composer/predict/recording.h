#pragma once
// What all exports begin with. Internal.
#include <string>

#include "composer/core/model_access.h"
#include "composer/predict/export.h"
#include "composer/predict/traced_model.h"

namespace composer::predict {

// In its scope, the model is in evaluation mode.
class Evaluating {
 public:
  explicit Evaluating(Model& model) : modes_(as_module(model)) { set_training(as_module(model), false); }
  ~Evaluating() { modes_.restore(); }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  ModuleModes modes_;
};

struct Recording {
  formats::TracedFunction function;
  Exported exported;
  OtherSizes other;  // sizes that the example does not have
};

// Chooses the inputs, records the function, and finds the sizes that it takes. `who` begins errors and warnings.
Recording record(const std::string& who, Model& model, const Batch& example, const ExportOptions& options);

}  // namespace composer::predict
