#include "composer/data/preprocessing.h"

namespace composer::data {

Preprocessing::~Preprocessing() = default;

Outputs Preprocessing::undo(Outputs outputs) const { return outputs; }

}  // namespace composer::data
