#include "composer/core/run.h"

namespace composer {

Run::~Run() = default;

}  // namespace composer
