#include "composer/loggers/registry.h"

namespace composer::loggers {

const Registry<Loggers>& registry() {
  static const Registry<Loggers> entries = {};
  return entries;
}

}  // namespace composer::loggers
