#include "composer/surgery/position_bias.h"

namespace composer {

LearnsPositions::~LearnsPositions() = default;

}  // namespace composer
