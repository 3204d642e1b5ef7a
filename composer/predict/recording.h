#pragma once
// What all exports begin with. Internal.
#include <string>

#include "composer/formats/in_place.h"
#include "composer/predict/export.h"
#include "composer/predict/traced_model.h"

namespace composer::predict {

struct Recording {
  formats::TracedFunction function;
  Exported exported;
  OtherSizes other;  // sizes that the example does not have
};

// Chooses the inputs, records the function with a few samples of the example, or with all if it does not take others,
// and finds the sizes that it takes. What has to be recorded as `in_place` says is also compared so. `who` begins
// errors.
Recording record(const std::string& who, Model& model, const Batch& example, const ExportOptions& options,
                 formats::InPlace in_place = formats::InPlace::KEPT);

// Says, if it is so, that the program works for the sizes of the example only: a ConfigError if others were asked for,
// otherwise a warning.
void tell_of_sizes(const std::string& who, const Recording& recording, const DynamicSizes& dynamic,
                   const std::string& why = "the model's forward() uses them as numbers");

}  // namespace composer::predict
