// Trainers, loaders and evaluators as recorded configurations describe them.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "composer/trainer/trainer.h"
#include "tests/replay/make.h"

namespace composer::replay {

// "5ba", or an integer: epochs. Throws TimeTypeError for 5.0, as Composer does.
Time time_of(const Json& recorded);
// Likewise, or {"callable": "event_every", ...}.
Interval interval_of(const Json& recorded);
// {"size", "batch_size", "drop_last", "sized", "tokens_per_sample"}: samples x [4] and labels 0 to 2, in order.
AnyDataSpec toy_data(const Json& recorded);
// A list of evaluators, or one data object.
Evaluators evaluators_of(const Json& recorded);
// A linear classifier of the toy data.
std::shared_ptr<Model> toy_model();

// Constructor arguments by name, on a toy model with SGD(lr=0.1). Throws Unsupported for one that we do not have.
TrainerOptions trainer_options(const Json& arguments);
FitOptions fit_options(const Json& arguments);

// Whether the key is one of the means that Composer does not log (rule means_of_epochs).
inline bool is_mean_of_epoch(std::string_view key) {
  return (key.starts_with("loss/train/") || key.starts_with("metrics/train/")) && key.ends_with("_epoch");
}

}  // namespace composer::replay
