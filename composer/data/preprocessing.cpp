#include "composer/data/preprocessing.h"

namespace composer::data {

Preprocessing::~Preprocessing() = default;

}  // namespace composer::data
