#pragma once
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/state_dict.h"
#include "composer/core/tensors.h"

namespace composer::data {

// Turns raw samples into what a model takes. It is fitted on the training data alone (means, vocabularies, values for
// what is missing), applied to all data in the same way, and saved beside the weights, so that a program that predicts
// applies it as well.
class COMPOSER_EXPORT Preprocessing {
 public:
  virtual ~Preprocessing();
  // The name under which a file says which class it is of, such as "table".
  virtual std::string name() const = 0;
  // Returns the batch that the model takes. Does not change `raw`. Thread-safe. Throws DataError.
  virtual Batch apply(const Batch& raw) const = 0;
  // Turns the outputs of the model into the units of the raw data, such as targets that were scaled. By default they
  // stay as they are. Thread-safe.
  virtual Outputs undo(Outputs outputs) const;
  // The names of the classes in the order of the model's outputs, if the preprocessing has learned them; by default
  // none.
  virtual std::vector<std::string> class_names() const;
  // All that was fitted, and the options that apply() depends on (core/state_dict.h).
  virtual void visit_state(StateVisitor& visit) = 0;
};

}  // namespace composer::data
