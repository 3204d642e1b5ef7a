#include "composer/data/preprocessing.h"

namespace composer::data {

Preprocessing::~Preprocessing() = default;

Outputs Preprocessing::undo(Outputs outputs) const { return outputs; }

std::vector<std::string> Preprocessing::class_names() const { return {}; }

}  // namespace composer::data
