#include "composer/core/run.h"

namespace composer {

Run::~Run() = default;
bool Run::is_resumable() const { return false; }

}  // namespace composer
